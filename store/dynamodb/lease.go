package dynamodb

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	ddb "github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"gobridge"
	"gobridge/internal/percent"
)

// leases are the leases of a table, one row each under one partition key.
type leases struct{ store *Store }

// Leases implements [gobridge.Leaser].
func (s *Store) Leases() gobridge.LeaseStore { return &leases{s} }

func leaseKey(p gobridge.Partition) item { return key(leasesPK, escape(string(p))) }

// lease is a row.
type lease struct {
	gobridge.Lease
	nonce string
}

func parseLease(it item) (lease, error) {
	p := parser{it: it}
	name, err := percent.Decode(p.text(attrSK))
	p.fail(attrSK, err)
	out := lease{nonce: p.text("nonce"), Lease: gobridge.Lease{
		Partition: gobridge.Partition(name),
		Token:     gobridge.Token{Owner: p.text("owner"), Version: p.num("version")},
		Term:      time.Duration(p.num("term")),
		Revision:  p.num("revision"),
		Released:  p.num("released") != 0,
		RenewedAt: p.time("renewed_at"),
	}}
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
	out, err := l.store.getItem(ctx, c, &ddb.GetItemInput{Key: leaseKey(request.Partition), ConsistentRead: yes()})
	if err != nil {
		return gobridge.Lease{}, err
	}
	old := lease{}
	if len(out.Item) > 0 {
		if old, err = parseLease(out.Item); err != nil {
			return gobridge.Lease{}, err
		}
	}
	for {
		if old.Revision > 0 && !old.Released && old.Revision != request.Observed {
			return gobridge.Lease{}, &gobridge.Error{Op: c.op, Partition: c.partition, Err: gobridge.ErrLeaseHeld,
				Hint: fmt.Sprintf("held by %s, revision %d", old.Token, old.Revision)}
		}
		taken := lease{nonce: newNonce(), Lease: gobridge.Lease{
			Partition: request.Partition,
			Token:     gobridge.Token{Owner: request.Owner, Version: max(old.Token.Version, request.MinVersion) + 1},
			Term:      request.Term, Revision: old.Revision + 1, RenewedAt: clean(l.store.now()),
		}}
		now, err := l.put(ctx, c, &taken, old.Revision)
		if err != nil {
			return gobridge.Lease{}, err
		}
		if now == nil || now.nonce == taken.nonce {
			return taken.Lease, nil
		}
		old = *now
	}
}

// put writes a lease over the one with a revision, or none where that is zero.
// If there is another one meanwhile, it returns that.
func (l *leases) put(ctx context.Context, c call, taken *lease, over int64) (*lease, error) {
	row := leaseKey(taken.Partition)
	row["owner"], row["version"], row["term"] = text(taken.Token.Owner), num(taken.Token.Version), num(taken.Term)
	row["revision"], row["renewed_at"], row["nonce"] = num(taken.Revision), num(nanos(taken.RenewedAt)), str(taken.nonce)
	in := &ddb.PutItemInput{
		Item: row, ConditionExpression: ptr(absent), ExpressionAttributeNames: names(absent),
		ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
	}
	if over > 0 {
		condition := "#revision = :over"
		in.ConditionExpression, in.ExpressionAttributeNames = &condition, names(condition)
		in.ExpressionAttributeValues = item{":over": num(over)}
	}
	_, err := l.store.putItem(ctx, c, in)
	if it, refused := failedCondition(err); refused {
		if len(it) == 0 { // the row is gone altogether
			return &lease{}, nil
		}
		now, err := parseLease(it)
		return &now, err
	}
	return nil, err
}

const heldLease = "#owner = :owner AND #version = :version AND attribute_not_exists(#released)"

// Renew implements [gobridge.LeaseStore].
func (l *leases) Renew(ctx context.Context, all []gobridge.Lease) ([]gobridge.Lease, error) {
	const op = "renew leases"
	if err := ctx.Err(); err != nil {
		return nil, fail(op, "", err)
	}
	renewed := make([]*lease, len(all))
	var mu sync.Mutex
	var firstErr error
	each(len(all), func(i int) {
		got, err := l.renew(ctx, call{op, all[i].Partition}, &all[i])
		renewed[i] = got
		mu.Lock()
		defer mu.Unlock()
		if firstErr == nil {
			firstErr = err
		}
	})
	if firstErr != nil {
		return nil, fail(op, "", firstErr)
	}
	var out []gobridge.Lease
	for _, got := range renewed {
		if got != nil {
			out = append(out, got.Lease)
		}
	}
	return out, nil
}

func (l *leases) renew(ctx context.Context, c call, asked *gobridge.Lease) (*lease, error) {
	if asked.Partition == "" || len(escape(string(asked.Partition))) > 1024 {
		return nil, nil
	}
	update := "SET #renewed_at = :now ADD #revision :one"
	out, err := l.store.updateItem(ctx, c, &ddb.UpdateItemInput{
		Key: leaseKey(asked.Partition), UpdateExpression: &update, ConditionExpression: ptr(heldLease),
		ExpressionAttributeNames: names(update, heldLease), ExpressionAttributeValues: item{
			":now": num(nanos(clean(l.store.now()))), ":one": num(1),
			":owner": text(asked.Token.Owner), ":version": num(asked.Token.Version),
		},
		ReturnValues: types.ReturnValueAllNew,
	})
	if _, lost := failedCondition(err); lost {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	got, err := parseLease(out.Attributes)
	return &got, err
}

// Release implements [gobridge.LeaseStore].
func (l *leases) Release(ctx context.Context, given gobridge.Lease) error {
	c := call{op: "release lease", partition: given.Partition}
	if err := ctx.Err(); err != nil {
		return fail(c.op, c.partition, err)
	}
	if given.Partition == "" || len(escape(string(given.Partition))) > 1024 {
		return fail(c.op, c.partition, gobridge.ErrLeaseLost)
	}
	update := "SET #released = :one ADD #revision :one"
	_, err := l.store.updateItem(ctx, c, &ddb.UpdateItemInput{
		Key: leaseKey(given.Partition), UpdateExpression: &update, ConditionExpression: ptr(heldLease),
		ExpressionAttributeNames: names(update, heldLease), ExpressionAttributeValues: item{
			":one": num(1), ":owner": text(given.Token.Owner), ":version": num(given.Token.Version),
		},
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
	condition := "#PK = :pk"
	out := []gobridge.Lease{}
	err := l.store.queryAll(ctx, c, &ddb.QueryInput{
		KeyConditionExpression: &condition, ExpressionAttributeNames: names(condition),
		ExpressionAttributeValues: item{":pk": str(leasesPK)}, ConsistentRead: yes(),
	}, func(it item) (bool, error) {
		one, err := parseLease(it)
		out = append(out, one.Lease)
		return true, err
	})
	if err != nil {
		return nil, fail(c.op, "", err)
	}
	slices.SortFunc(out, func(a, b gobridge.Lease) int { return cmp.Compare(a.Partition, b.Partition) })
	return out, nil
}
