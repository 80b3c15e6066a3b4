package dynamodb

import (
	"context"
	"sync"
	"time"

	ddb "github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"gobridge"
)

// The bell is one row that counts: whoever stores records rings, and whoever waits
// for some reads it, for one read in the place of one of each partition. It is rung
// every few seconds at most, and who hears it looks for longer than that, so that
// what is stored without a ring is seen too. Nothing rests on it but time: without
// a ring every partition is looked at now and then.
const (
	// ringEvery is the least pause between two rings of a handle.
	ringEvery = 5 * time.Second
	// listenFor is how long every partition is looked at after a ring. It is longer
	// than ringEvery by more than reads are behind.
	listenFor = 2 * ringEvery
	// lookAnyway is how often every partition is looked at without a ring.
	lookAnyway = 30 * time.Second
	// ringTime bounds a ring, for whoever stores waits for it.
	ringTime = 500 * time.Millisecond
)

// bell is what a handle knows of it.
type bell struct {
	mu    sync.Mutex
	rung  time.Time // last, by this handle
	heard int64     // rings so far

	until  time.Time // every partition is looked at
	looked time.Time // at every one
}

func bellKey() item { return key(bellPK, bellSK) }

// ring tells whoever waits that records of a partition are about to be stored.
// That it fails is nobody's failure.
func (s *Store) ring(ctx context.Context, c call) {
	st := s.state(c.partition)
	st.mu.Lock()
	st.stirred, st.quiet = time.Now(), false
	st.mu.Unlock()
	b := &s.bell
	b.mu.Lock()
	due := time.Since(b.rung) >= ringEvery
	if due {
		b.rung = time.Now()
	}
	b.mu.Unlock()
	if !due {
		return
	}
	update := "ADD #rings :one"
	ctx, cancel := context.WithTimeout(ctx, ringTime)
	defer cancel()
	out, err := send(ctx, s, call{"ring", c.partition}, request{name: "UpdateItem", write: true, casual: true}, s.api.UpdateItem, &ddb.UpdateItemInput{
		TableName: &s.table, Key: bellKey(), UpdateExpression: &update, ExpressionAttributeNames: names(update),
		ExpressionAttributeValues: item{":one": num(1)}, ReturnValues: types.ReturnValueUpdatedNew, ReturnConsumedCapacity: capacity,
	})
	if err != nil {
		return
	}
	// Its own ring is no news to a handle: it knows what it stores.
	b.mu.Lock()
	defer b.mu.Unlock()
	if p := (parser{it: out.Attributes}); p.num("rings") == b.heard+1 {
		b.heard++
	}
}

// listen reports whether every partition is to be looked at.
func (s *Store) listen(ctx context.Context, c call) (bool, error) {
	out, err := s.getItem(ctx, c, &ddb.GetItemInput{Key: bellKey()})
	if err != nil {
		return false, err
	}
	p := parser{it: out.Item}
	rings := p.num("rings")
	if p.err != nil {
		return false, p.err
	}
	b := &s.bell
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	if rings > b.heard {
		b.heard, b.until = rings, now.Add(listenFor)
	}
	if all := now.Before(b.until) || now.Sub(b.looked) >= lookAnyway; !all {
		return false, nil
	}
	b.looked = now
	return true, nil
}

// Quiet implements [gobridge.Quieter]. Reads are eventually consistent: what they
// miss the next one shows.
func (s *Store) Quiet(ctx context.Context, partitions ...gobridge.Partition) ([]gobridge.Partition, error) {
	c := call{op: "quiet"}
	all, err := s.listen(ctx, c)
	if err != nil {
		return nil, fail(c.op, "", err)
	}
	var keys []item
	asked := map[string]*state{}
	for _, p := range partitions {
		st := s.state(p)
		st.mu.Lock()
		if known := st.quiet && time.Since(st.stirred) > listenFor; (all || !known) && !unheardOf(p) {
			st.quiet = true // unless its row says otherwise
			keys = append(keys, key(partitionKey(p), fenceSK))
			asked[partitionKey(p)] = st
		}
		st.mu.Unlock()
	}
	rows, err := s.batchRead(ctx, c, keys, "#PK, #pending, #claimed", false)
	if err == nil {
		for _, it := range rows {
			p := parser{it: it}
			if st := asked[p.text(attrPK)]; p.num("pending") > 0 || p.num("claimed") > 0 || p.err != nil {
				st.stir()
			}
		}
	} else {
		for _, st := range asked {
			st.stir()
		}
		return nil, fail(c.op, "", err)
	}
	var out []gobridge.Partition
	for _, p := range partitions {
		st := s.state(p)
		st.mu.Lock()
		if st.quiet {
			out = append(out, p)
		}
		st.mu.Unlock()
	}
	return out, nil
}

// stir notes that there may be something in a partition.
func (st *state) stir() {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.quiet = false
}
