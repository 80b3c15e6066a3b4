package dynamodb

import (
	"context"
	"errors"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"gobridge"
)

// change is what is to become of one record. It happens only if the record is
// still as it was read.
type change struct {
	row *row // as it was read
	// to is the state that the record goes to.
	to gobridge.State
	// update is the expression, with its values; the nonce is added.
	update string
	values item

	conflicts int
	done      bool
	// lost says that it did not happen, for the record is not any more as it was.
	lost bool
	// behind says that it was not tried any more, for one before it was lost.
	behind bool
}

// condition is true of a row that is as it was read.
const unchanged = "#nonce = :was"

// write returns the change as a part of a transaction.
func (s *Store) write(ch *change, nonce string) types.TransactWriteItem {
	values := item{":was": str(ch.row.nonce), ":nonce": str(nonce)}
	for name, v := range ch.values {
		values[name] = v
	}
	return types.TransactWriteItem{Update: &types.Update{
		TableName: &s.table, Key: key(ch.row.pk, ch.row.sk),
		UpdateExpression: &ch.update, ConditionExpression: ptr(unchanged),
		ExpressionAttributeNames: names(ch.update, unchanged), ExpressionAttributeValues: values,
	}}
}

// fenceUpdate adds to the figures of a partition in a transaction. It costs
// what a condition check of the fence row would. A version other than zero must
// be the newest; new dead letters must have room.
func (s *Store) fenceUpdate(p gobridge.Partition, d delta, version int64) types.TransactWriteItem {
	values := item{":nonce": str(newNonce())}
	update, condition := d.figures(values), "attribute_exists(#PK)"
	if version != 0 {
		condition += " AND #max_claim_version = :version"
		values[":version"] = num(version)
	}
	if d.dead > 0 {
		condition += " AND #dead <= :most_dead AND #dead_bytes <= :most_bytes"
		values[":most_dead"] = num(s.options.MaxDead - d.dead)
		values[":most_bytes"] = num(s.options.MaxDeadBytes - d.deadBytes)
	}
	return types.TransactWriteItem{Update: &types.Update{
		TableName: &s.table, Key: key(partitionKey(p), fenceSK),
		UpdateExpression: &update, ConditionExpression: &condition,
		ExpressionAttributeNames: names(update, condition), ExpressionAttributeValues: values,
		ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
	}}
}

// commit is a number of changes in one partition.
type commit struct {
	call    call
	changes []*change // in ascending age
	// version, unless zero, must be the partition's newest.
	version int64
	// keys says that a change that is lost takes the later ones of its key with it.
	keys bool
	// patient says that a record that others are changing just now is waited for.
	patient bool
	// nonce is what the rows have after.
	nonce string
	// note, unless nil, is the audit entry that each transaction counts up.
	note *note
	// beside is written by itself, under the same conditions, when there are no
	// changes.
	beside     []types.TransactWriteItem
	besideDone bool
}

// run makes the changes, in as many transactions as it takes, one after the
// other: side by side they would conflict on the fence row. Changes that were
// lost are marked so. An error leaves those before it done.
func (s *Store) run(ctx context.Context, cm *commit) error {
	units := maxChunkUnits
	fruitless := 0
	for {
		chunk := cm.next(units)
		if len(chunk) == 0 && (len(cm.beside) == 0 || cm.besideDone) {
			return nil
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		var d delta
		items := make([]types.TransactWriteItem, 1, len(chunk)+1)
		for _, ch := range chunk {
			d.add(moves(ch.row, ch.to))
			items = append(items, s.write(ch, cm.nonce))
		}
		items[0] = s.fenceUpdate(cm.call.partition, d, cm.version)
		items = append(items, cm.beside...)
		if cm.note != nil {
			items = append(items, cm.note.write(s, int64(len(chunk))))
		}
		err := s.transact(ctx, cm.call, items)
		if err == nil {
			for _, ch := range chunk {
				ch.done = true
			}
			cm.besideDone = true
			fruitless = 0
			continue
		}
		var cancelled *types.TransactionCanceledException
		if !errors.As(err, &cancelled) || len(cancelled.CancellationReasons) != len(items) {
			return err
		}
		progress, err := cm.learn(chunk, cancelled, &units)
		if err != nil {
			return err
		}
		if !progress {
			if err := s.pause(ctx, fruitless, cancelled); err != nil {
				return err
			}
			fruitless++
		}
	}
}

// next returns the changes of the next transaction: as many as fit one.
func (cm *commit) next(units int) (chunk []*change) {
	used, size := 2, 0
	for _, ch := range cm.changes {
		if ch.done || ch.lost {
			continue
		}
		used += ch.row.units()
		size += ch.row.bytes()
		if len(chunk) > 0 && (len(chunk) == maxChunk || used > units || size > maxChunkBytes) {
			return chunk
		}
		chunk = append(chunk, ch)
	}
	return chunk
}

// made returns the rows, as they were, of the changes that were made.
func (cm *commit) made() []*row {
	var out []*row
	for _, ch := range cm.changes {
		if ch.done {
			out = append(out, ch.row)
		}
	}
	return out
}

// maxConflicts is how often a record may be in the way of its chunk.
const maxConflicts = 3

// learn marks what a cancelled transaction lost, so that it is tried again
// without. It reports whether the next attempt is another than this one was.
func (cm *commit) learn(chunk []*change, cancelled *types.TransactionCanceledException, units *int) (progress bool, err error) {
	for i, reason := range cancelled.CancellationReasons {
		code := aws.ToString(reason.Code)
		switch {
		case code == "" || code == "None":
		case isThrottle(code):
			// It may be that a partition of the table can't take so much at once.
			if *units > 2*maxChunkUnits/maxChunk {
				*units /= 2
			}
		case i == 0 && code == reasonCondition:
			return false, cm.refusal(reason.Item)
		case (i == 0 || i > len(chunk)) && code == reasonConflict:
		case code == reasonConflict:
			ch := chunk[i-1]
			if ch.conflicts++; ch.conflicts >= maxConflicts && !cm.patient {
				cm.lose(ch)
				progress = true
			}
		case code == reasonCondition:
			cm.lose(chunk[i-1])
			progress = true
		default:
			// Nothing that another attempt mends: without this record, if it is one.
			if i == 0 || i > len(chunk) {
				return false, cancelled
			}
			cm.lose(chunk[i-1])
			progress = true
		}
	}
	return progress, nil
}

func (cm *commit) lose(lost *change) {
	lost.lost, lost.behind = true, false
	if !cm.keys || lost.row.key() == "" {
		return
	}
	after := false
	for _, ch := range cm.changes {
		if ch == lost {
			after = true
		}
		if after && !ch.done && !ch.lost && ch.row.key() == lost.row.key() {
			ch.lost, ch.behind = true, true
		}
	}
}

// refusal is why the fence row's condition was false.
func (cm *commit) refusal(it item) error {
	now, err := parseFence(it)
	switch {
	case err != nil:
		return err
	case cm.version != 0 && now.token.Version != cm.version:
		return stale(cm.call, now.token)
	default:
		return gobridge.ErrDeadLettersFull
	}
}
