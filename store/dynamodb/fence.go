package dynamodb

import (
	"context"
	"errors"
	"fmt"

	ddb "github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"gobridge"
)

// fence is the fence row of a partition. Its first and last are:
//
//	max_claim_version, owner   the newest token
//	seq_counter                the newest Seq given out
//	newest, newest_was         the newest stamp, in nanoseconds, and the one before
//	pending, claimed           figures; see ADR 5 for their error bound
//	dead, dead_bytes           figures, exact, for they bound the dead letters
//	retries                    calls of Retry that named the partition
//	nonce                      the last change
type fence struct {
	token                             gobridge.Token
	seq, newest, newestWas            int64
	pending, claimed, dead, deadBytes int64
	retries                           int64
	nonce                             string
}

func parseFence(it item) (fence, error) {
	p := parser{it: it}
	f := fence{
		token: gobridge.Token{Owner: p.text("owner"), Version: p.num("max_claim_version")},
		seq:   p.num("seq_counter"), newest: p.num("newest"), newestWas: p.num("newest_was"),
		pending: p.num("pending"), claimed: p.num("claimed"), dead: p.num("dead"), deadBytes: p.num("dead_bytes"),
		retries: p.num("retries"), nonce: p.text("nonce"),
	}
	if p.err != nil {
		return fence{}, fmt.Errorf("fence row: %w", p.err)
	}
	return f, nil
}

// readFence reads the fence row; ok says whether there is one.
func (s *Store) readFence(ctx context.Context, c call, p gobridge.Partition) (f fence, ok bool, err error) {
	out, err := s.getItem(ctx, c, &ddb.GetItemInput{Key: key(partitionKey(p), fenceSK), ConsistentRead: yes()})
	if err != nil || len(out.Item) == 0 {
		return fence{}, false, err
	}
	f, err = parseFence(out.Item)
	return f, true, err
}

// ensure sees to it that the partition has its fence row, and is listed.
func (s *Store) ensure(ctx context.Context, c call, p gobridge.Partition) error {
	st := s.state(p)
	st.mu.Lock()
	known := st.known
	st.mu.Unlock()
	if known {
		return nil
	}
	_, ok, err := s.readFence(ctx, c, p)
	if err == nil && !ok {
		err = s.createFence(ctx, c, p)
	}
	if err != nil {
		return err
	}
	st.mu.Lock()
	st.known = true
	st.mu.Unlock()
	return nil
}

func (s *Store) createFence(ctx context.Context, c call, p gobridge.Partition) error {
	row := key(partitionKey(p), fenceSK)
	for _, name := range []string{"max_claim_version", "seq_counter", "newest", "pending", "claimed", "dead", "dead_bytes"} {
		row[name] = num(0)
	}
	row["nonce"] = str(newNonce())
	items := []types.TransactWriteItem{
		{Put: &types.Put{TableName: &s.table, Item: row, ConditionExpression: ptr(absent), ExpressionAttributeNames: names(absent)}},
		{Put: &types.Put{TableName: &s.table, Item: key(partitionsPK, escape(string(p)))}},
	}
	for n := 0; ; n++ {
		err := s.transact(ctx, c, items)
		var cancelled *types.TransactionCanceledException
		if !errors.As(err, &cancelled) {
			return err
		}
		// Somebody else has made it, or is about to.
		if _, ok, err := s.readFence(ctx, c, p); err != nil || ok {
			return err
		}
		if err := s.pause(ctx, n, cancelled); err != nil {
			return err
		}
	}
}

// raise lets a token in, and with it no older one any more. It returns the
// fence row as it is then.
func (s *Store) raise(ctx context.Context, c call, token gobridge.Token) (fence, error) {
	f, ok, err := s.readFence(ctx, c, c.partition)
	if err == nil && !ok {
		if err = s.ensure(ctx, c, c.partition); err == nil {
			f, _, err = s.readFence(ctx, c, c.partition)
		}
	}
	if err != nil {
		return fence{}, err
	}
	return s.raiseFrom(ctx, c, f, token)
}

// raiseFrom is raise for who has read the fence row.
func (s *Store) raiseFrom(ctx context.Context, c call, f fence, token gobridge.Token) (fence, error) {
	switch {
	case token.Version < f.token.Version:
		return fence{}, stale(c, f.token)
	case token.Version == f.token.Version:
		return f, nil
	}
	update := "SET #max_claim_version = :version, #owner = :owner, #nonce = :nonce"
	condition := "#max_claim_version < :version"
	out, err := s.updateItem(ctx, c, &ddb.UpdateItemInput{
		Key: key(partitionKey(c.partition), fenceSK), UpdateExpression: &update, ConditionExpression: &condition,
		ExpressionAttributeNames: names(update, condition),
		ExpressionAttributeValues: item{
			":version": num(token.Version), ":owner": text(token.Owner), ":nonce": str(newNonce()),
		},
		ReturnValues:                        types.ReturnValueAllNew,
		ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
	})
	if err == nil {
		return parseFence(out.Attributes)
	}
	if it, ok := failedCondition(err); ok && len(it) > 0 {
		now, err := parseFence(it)
		if err == nil && now.token.Version > token.Version {
			err = stale(c, now.token)
		}
		return now, err // the same version: this call's own earlier attempt, or the owner's other goroutine
	}
	return fence{}, err
}

func stale(c call, newest gobridge.Token) error {
	return &gobridge.Error{Op: c.op, Partition: c.partition, Err: gobridge.ErrStaleFencingToken,
		Hint: "the partition now belongs to " + newest.String()}
}

// delta is what changes of records add to the figures of their partition.
type delta struct{ pending, claimed, dead, deadBytes int64 }

func (d *delta) add(e delta) {
	d.pending += e.pending
	d.claimed += e.claimed
	d.dead += e.dead
	d.deadBytes += e.deadBytes
}

// leaves and enters are the deltas of a record that goes out of a state, or
// comes into one.
func leaves(r *row) delta {
	d := enters(r, r.State)
	return delta{-d.pending, -d.claimed, -d.dead, -d.deadBytes}
}

func enters(r *row, state gobridge.State) delta {
	switch state {
	case gobridge.StatePending:
		return delta{pending: 1}
	case gobridge.StateClaimed:
		return delta{claimed: 1}
	case gobridge.StateDead:
		return delta{dead: 1, deadBytes: r.size}
	}
	return delta{}
}

// moves is the delta of a record that goes from one state to another.
func moves(r *row, to gobridge.State) delta {
	d := leaves(r)
	d.add(enters(r, to))
	return d
}

// figures are the expressions that add a delta to the fence row.
func (d delta) figures(values item) string {
	update := "SET #nonce = :nonce"
	verb := " ADD "
	for _, f := range []struct {
		name string
		by   int64
	}{{"pending", d.pending}, {"claimed", d.claimed}, {"dead", d.dead}, {"dead_bytes", d.deadBytes}} {
		if f.by != 0 {
			update += verb + "#" + f.name + " :" + f.name
			values[":"+f.name] = num(f.by)
			verb = ", "
		}
	}
	return update
}

// count adds a delta to the figures by itself, after the changes it is of. It
// is done also if the caller has given up meanwhile. A failure leaves the figures
// wrong until a sweep has counted anew, which is no failure of the call.
func (s *Store) count(ctx context.Context, c call, p gobridge.Partition, d delta) {
	if d == (delta{}) {
		return
	}
	nonce := newNonce()
	values := item{":nonce": str(nonce)}
	update, condition := d.figures(values), "attribute_exists(#PK) AND #nonce <> :nonce"
	_, err := s.updateItem(context.WithoutCancel(ctx), c, &ddb.UpdateItemInput{
		Key: key(partitionKey(p), fenceSK), UpdateExpression: &update, ConditionExpression: &condition,
		ExpressionAttributeNames: names(update, condition), ExpressionAttributeValues: values,
	})
	if _, repeated := failedCondition(err); err != nil && !repeated {
		s.log.WarnContext(ctx, "figures of a partition are off until it is counted anew",
			"partition", string(p), "operation", c.op, "error", err)
	}
}
