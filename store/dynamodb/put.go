package dynamodb

import (
	"context"
	"errors"
	"fmt"

	ddb "github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"gobridge"
)

// put stores a unit.
func (p *persist) put(ctx context.Context, u *unit) {
	var err error
	u.left = nil
	if len(u.rows) == 1 && u.rows[0].State == gobridge.StatePending {
		err = p.putOne(ctx, u)
	} else {
		err = p.putAll(ctx, u)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, r := range u.stored {
		p.touched = append(p.touched, r.Partition)
	}
	if err != nil {
		u.open = errors.Is(err, errOpen)
		p.err = errors.Join(p.err, &gobridge.Error{Op: p.call.op, Partition: u.rows[0].Partition, Ref: u.rows[0].Ref(), Err: err})
	}
}

const absent = "attribute_not_exists(#PK)"

func (p *persist) putOne(ctx context.Context, u *unit) error {
	r := u.rows[0]
	it, err := r.item()
	if err != nil {
		return err
	}
	_, err = p.store.putItem(ctx, call{p.call.op, r.Partition}, &ddb.PutItemInput{
		Item: it, ConditionExpression: ptr(absent), ExpressionAttributeNames: names(absent),
		ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
	})
	old, refused := failedCondition(err)
	if err == nil || !refused {
		if err == nil {
			u.stored = u.rows
		}
		return err
	}
	_, err = p.held(u, r, old)
	return err
}

// held decides what it means that there is a row already, and whether that has
// overtaken what comes after it: then it may still have to be sent, and is
// younger than it would have been, for somebody else has stored it who was given
// ages later. One that is dead counts: it is sent once it is redriven.
func (p *persist) held(u *unit, r *row, old item) (overtaken bool, err error) {
	if len(old) == 0 {
		return false, errNoOldRow
	}
	there, err := parseRow(old)
	switch {
	case err != nil:
		return false, err
	case there.Seq == r.Seq: // it was stored, and only the answer lost
		u.stored = append(u.stored, r)
	case there.ContentHash != r.ContentHash:
		p.refuse(r, gobridge.ErrIdentityReused)
	case r.key() != "" && (!there.State.Ended() || there.State == gobridge.StateDead) && r.age().before(there.age()):
		p.mu.Lock()
		defer p.mu.Unlock()
		p.overtaken = true
		return true, nil
	}
	return false, nil
}

var errNoOldRow = errors.New("DynamoDB refused a condition without returning the row that it was false of")

// putAll stores what is new of a unit in one transaction.
func (p *persist) putAll(ctx context.Context, u *unit) error {
	rows := u.rows
	for n := 0; ; n++ {
		items, err := p.puts(rows)
		if err != nil {
			return err
		}
		err = p.store.transact(ctx, call{p.call.op, rows[0].Partition}, items)
		if err == nil {
			u.stored = append(u.stored, rows...)
			return nil
		}
		var cancelled *types.TransactionCanceledException
		if !errors.As(err, &cancelled) {
			return err
		}
		left, why, err := p.without(u, rows, cancelled)
		if err != nil || len(left) == 0 {
			return err
		}
		if p.isRefused(u) {
			return nil
		}
		if why.overtaken {
			u.left = left
			return nil
		}
		if why.retry {
			if err := p.store.pause(ctx, n, cancelled); err != nil {
				return err
			}
		}
		rows = left
	}
}

func (p *persist) isRefused(u *unit) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.refused[u.id] != nil
}

// puts are the items of a unit's transaction: the records, and then, where some
// are dead letters, the fence rows that count those.
func (p *persist) puts(rows []*row) ([]types.TransactWriteItem, error) {
	var items []types.TransactWriteItem
	var order []gobridge.Partition
	dead := map[gobridge.Partition]delta{}
	for _, r := range rows {
		it, err := r.item()
		if err != nil {
			return nil, err
		}
		items = append(items, types.TransactWriteItem{Put: &types.Put{
			TableName: &p.store.table, Item: it, ConditionExpression: ptr(absent), ExpressionAttributeNames: names(absent),
			ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
		}})
		if r.State == gobridge.StateDead {
			d, seen := dead[r.Partition]
			if !seen {
				order = append(order, r.Partition)
			}
			d.add(enters(r, gobridge.StateDead))
			dead[r.Partition] = d
		}
	}
	for _, name := range order {
		items = append(items, p.store.fenceUpdate(name, dead[name], 0))
	}
	return items, nil
}

// leftover says of the rows of a cancelled transaction that are still to be
// stored whether something was in their way for a moment, and whether they need
// new ages.
type leftover struct{ retry, overtaken bool }

// without returns the rows of a cancelled transaction that are still to be
// stored. Refusals of the unit are noted.
func (p *persist) without(u *unit, rows []*row, cancelled *types.TransactionCanceledException) (left []*row, v leftover, err error) {
	for i, reason := range cancelled.CancellationReasons {
		code := ""
		if reason.Code != nil {
			code = *reason.Code
		}
		switch {
		case code == reasonCondition && i < len(rows):
			overtaken, err := p.held(u, rows[i], reason.Item)
			if err != nil {
				return nil, v, err
			}
			v.overtaken = v.overtaken || overtaken
			continue
		case code == reasonCondition:
			for _, r := range rows {
				if r.State == gobridge.StateDead {
					p.refuse(r, gobridge.ErrDeadLettersFull)
					break
				}
			}
		case code == "" || code == "None":
		case code == reasonConflict || isThrottle(code):
			v.retry = true
		default:
			return nil, v, cancelled
		}
		if i < len(rows) {
			left = append(left, rows[i])
		}
	}
	return left, v, nil
}

func isThrottle(code string) bool {
	return code == "ThrottlingError" || code == "ProvisionedThroughputExceeded"
}

// pause waits before a cancelled transaction is tried again.
func (s *Store) pause(ctx context.Context, n int, cause error) error {
	if n > 40 && !hasDeadline(ctx) {
		return cause
	}
	if err := s.sleep(ctx, backoff(n)); err != nil {
		return fmt.Errorf("%w; the last attempt: %w", err, cause)
	}
	return nil
}
