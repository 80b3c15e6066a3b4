package dynamodb

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	ddb "github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"gobridge"
	"gobridge/internal/percent"
)

// leases are the leases of a table, one row each under one partition key, and
// beside them the hearts (see heart).
type leases struct {
	store *Store

	making sync.Mutex // held while a heart is made
	mu     sync.Mutex
	heart  heart
	// covered are the rows that are under the heart, as they were written, or may
	// be, because the answer was lost.
	covered map[gobridge.Partition]*lease
}

// Leases implements [gobridge.Leaser]. Each call returns another handle: what
// is acquired through one is renewed together.
func (s *Store) Leases() gobridge.LeaseStore { return &leases{store: s} }

func leaseKey(p gobridge.Partition) item { return key(leasesPK, escape(string(p))) }

// lease is a row, with what its heart says.
type lease struct {
	gobridge.Lease
	nonce string
	// raw is the row's own part of Revision; base is what its heart had beaten
	// when it came under it.
	raw, base int64
	heart     string
	beating   bool // there is such a heart, and it has not been stopped
	doubt     bool // of a covered one: whether it was written is not known
	beats     int64
}

func parseLease(it item) (lease, error) {
	p := parser{it: it}
	name, err := percent.Decode(p.text(attrSK))
	p.fail(attrSK, err)
	out := lease{
		nonce: p.text("nonce"), raw: p.num("revision"), base: p.num("base"), heart: p.text("heart"),
		Lease: gobridge.Lease{
			Partition:   gobridge.Partition(name),
			Token:       gobridge.Token{Owner: p.text("owner"), Version: p.num("version")},
			Term:        time.Duration(p.num("term")),
			Revision:    p.num("revision"),
			Released:    p.num("released") != 0,
			AcquiredAt:  p.time("acquired_at"),
			RenewedAt:   p.time("renewed_at"),
			LastError:   p.text("last_error"),
			LastErrorAt: p.time("last_error_at"),
		},
	}
	if p.err != nil {
		return lease{}, fmt.Errorf("lease: %w", p.err)
	}
	return out, nil
}

// Acquire implements [gobridge.LeaseStore].
func (l *leases) Acquire(ctx context.Context, request gobridge.AcquireRequest) (gobridge.Lease, error) {
	c := call{op: "acquire lease", partition: request.Partition}
	err := ctx.Err()
	if err == nil {
		err = checkAcquire(&request)
	}
	var got gobridge.Lease
	if err == nil {
		got, err = l.acquire(ctx, c, &request)
	}
	if err != nil {
		return gobridge.Lease{}, fail(c.op, c.partition, err)
	}
	return got, nil
}

// checkAcquire says what is wrong with a request.
func checkAcquire(request *gobridge.AcquireRequest) error {
	switch {
	case request.Owner == "":
		return errors.New("the owner is empty")
	case request.Term <= 0:
		return fmt.Errorf("the term is %s; it must be above zero", request.Term)
	case request.MinVersion == math.MaxInt64:
		return fmt.Errorf("no version is above %d", request.MinVersion)
	case request.Partition == "" || len(escape(string(request.Partition))) > 1024:
		return errors.New("the partition's name is empty, or too long for a key")
	}
	return nil
}

func (l *leases) acquire(ctx context.Context, c call, request *gobridge.AcquireRequest) (gobridge.Lease, error) {
	taken := lease{nonce: newNonce()}
	for {
		old, err := l.read(ctx, c)
		switch {
		case err != nil:
			return gobridge.Lease{}, err
		case old.nonce == taken.nonce: // an attempt whose answer was lost
			l.cover(&taken)
			return taken.Lease, nil
		case old.Revision > 0 && !old.Released && old.Revision != request.Observed:
			return gobridge.Lease{}, &gobridge.Error{Op: c.op, Partition: c.partition, Err: gobridge.ErrLeaseHeld,
				Hint: fmt.Sprintf("held by %s, revision %d", old.Token, old.Revision)}
		}
		if old.beating {
			stopped, err := l.stop(ctx, c, &old)
			if err != nil {
				return gobridge.Lease{}, err
			}
			if !stopped {
				continue
			}
		}
		h, err := l.ensureHeart(ctx, c)
		if err != nil {
			return gobridge.Lease{}, err
		}
		now := clean(l.store.now())
		taken.heart, taken.base, taken.raw = h.id, h.beats, nextEpoch(old.Revision)
		taken.Lease = gobridge.Lease{
			Partition: request.Partition,
			Token:     gobridge.Token{Owner: request.Owner, Version: max(old.Token.Version, request.MinVersion) + 1},
			Term:      request.Term, Revision: taken.raw, AcquiredAt: now, RenewedAt: now,
		}
		l.attempt(&taken)
		done, err := l.put(ctx, c, &taken, &old)
		if err != nil {
			return gobridge.Lease{}, err
		}
		if done {
			l.cover(&taken)
			return taken.Lease, nil
		}
		l.uncover(&taken.Lease)
	}
}

// read returns the lease of a partition, a zero one if there is none.
func (l *leases) read(ctx context.Context, c call) (lease, error) {
	out, err := l.store.getItem(ctx, c, &ddb.GetItemInput{Key: leaseKey(c.partition), ConsistentRead: yes()})
	if err != nil || len(out.Item) == 0 {
		return lease{}, err
	}
	row, err := parseLease(out.Item)
	if err != nil || row.heart == "" {
		return row, err
	}
	out, err = l.store.getItem(ctx, c, &ddb.GetItemInput{Key: heartKey(row.heart), ConsistentRead: yes()})
	if err != nil || len(out.Item) == 0 {
		return row, err
	}
	h, err := parseHeart(out.Item)
	row.under(&h)
	return row, err
}

// put writes a lease over the one that was read, and reports false if that has
// changed since.
func (l *leases) put(ctx context.Context, c call, taken, old *lease) (bool, error) {
	row := leaseKey(taken.Partition)
	row["owner"], row["version"], row["term"] = text(taken.Token.Owner), num(taken.Token.Version), num(taken.Term)
	row["revision"], row["nonce"], row["heart"], row["base"] = num(taken.raw), str(taken.nonce), str(taken.heart), num(taken.base)
	row["renewed_at"], row["acquired_at"] = num(nanos(taken.RenewedAt)), num(nanos(taken.AcquiredAt))
	condition, values := absent, item(nil)
	if old.Revision > 0 {
		condition, values = "#revision = :over", item{":over": num(old.raw)}
	}
	_, err := l.store.putItem(ctx, c, &ddb.PutItemInput{
		Item: row, ConditionExpression: &condition, ExpressionAttributeNames: names(condition), ExpressionAttributeValues: values,
		ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
	})
	if _, changed := failedCondition(err); changed {
		return false, nil
	}
	return err == nil, err
}

const heldLease = "#owner = :owner AND #version = :version AND attribute_not_exists(#released)"

// Release implements [gobridge.LeaseStore].
func (l *leases) Release(ctx context.Context, given gobridge.Lease) error {
	c := call{op: "release lease", partition: given.Partition}
	if err := ctx.Err(); err != nil {
		return fail(c.op, c.partition, err)
	}
	if given.Partition == "" || len(escape(string(given.Partition))) > 1024 {
		return fail(c.op, c.partition, gobridge.ErrLeaseLost)
	}
	update := "SET #released = :one"
	values := item{
		":one": num(1), ":epoch": num(int64(epoch)), ":owner": text(given.Token.Owner), ":version": num(given.Token.Version),
	}
	if at, known := l.uncover(&given); known { // the last sign of life, which the row alone does not know
		update += ", #renewed_at = :renewed_at"
		values[":renewed_at"] = num(nanos(at))
	}
	update += " ADD #revision :epoch REMOVE #heart, #base"
	_, err := l.store.updateItem(ctx, c, &ddb.UpdateItemInput{
		Key: leaseKey(given.Partition), UpdateExpression: &update, ConditionExpression: ptr(heldLease),
		ExpressionAttributeNames: names(update, heldLease), ExpressionAttributeValues: values,
		ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
	})
	it, refused := failedCondition(err)
	if !refused {
		return fail(c.op, c.partition, err)
	}
	if len(it) > 0 {
		now, err := parseLease(it)
		if err != nil {
			return fail(c.op, c.partition, err)
		}
		if now.Token == given.Token && now.Released { // by the same holder, who may not have learned it
			return nil
		}
	}
	return fail(c.op, c.partition, gobridge.ErrLeaseLost)
}

// Leases implements [gobridge.LeaseStore].
func (l *leases) Leases(ctx context.Context) ([]gobridge.Lease, error) {
	c := call{op: "list leases"}
	if err := ctx.Err(); err != nil {
		return nil, fail(c.op, "", err)
	}
	rows, err := l.list(ctx, c)
	if err != nil {
		return nil, fail(c.op, "", err)
	}
	out := make([]gobridge.Lease, len(rows))
	for i := range rows {
		out[i] = rows[i].Lease
	}
	slices.SortFunc(out, func(a, b gobridge.Lease) int { return cmp.Compare(a.Partition, b.Partition) })
	return out, nil
}

// list reads all leases and hearts.
func (l *leases) list(ctx context.Context, c call) ([]lease, error) {
	condition := "#PK = :pk"
	var rows []lease
	hearts := map[string]*heart{}
	err := l.store.queryAll(ctx, c, &ddb.QueryInput{
		KeyConditionExpression: &condition, ExpressionAttributeNames: names(condition),
		ExpressionAttributeValues: item{":pk": str(leasesPK)}, ConsistentRead: yes(),
	}, func(it item) (bool, error) {
		if p := (parser{it: it}); strings.HasPrefix(p.text(attrSK), heartPrefix) {
			h, err := parseHeart(it)
			hearts[h.id] = &h
			return true, err
		}
		one, err := parseLease(it)
		rows = append(rows, one)
		return true, err
	})
	if err != nil {
		return nil, err
	}
	used := map[string]bool{}
	for i := range rows {
		if h := hearts[rows[i].heart]; h != nil {
			rows[i].under(h)
			used[h.id] = true
		}
	}
	for id, h := range hearts {
		if !used[id] {
			l.bury(ctx, c, h)
		}
	}
	return rows, nil
}
