package dynamodb

import (
	"context"
	"errors"
	"fmt"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"gobridge"
)

// maxItems is how many items a transaction has at most, maxBatchItem what one
// may have that names all earlier records of its key, with room for its life.
const (
	maxItems     = 100
	maxBatchItem = 400<<10 - 2*maxText
)

// Batch is records on their way into a transaction of the caller's.
type Batch struct {
	// Items write the records. They go into one TransactWriteItems, beside the
	// caller's own, and all of them: what is left without a duplicate needs younger
	// ages than that has, and gets them from another call of PersistItems.
	Items []types.TransactWriteItem

	store *Store
	call  call
	rows  []*row
}

// PersistItems is Persist inside the caller's own transaction: it gives the
// records their ages and returns what writes them.
//
//	batch, err := store.PersistItems(ctx, records)
//	...
//	_, err = client.TransactWriteItems(ctx, &dynamodb.TransactWriteItemsInput{
//		TransactItems: append(batch.Items, order),
//	})
//	if err != nil {
//		return batch.Err(err)
//	}
//	batch.Committed(ctx)
//
// Call it as late as possible: records are in the order of these calls, not of
// the commits, so one that commits late may come after a younger one that has
// gone. A transaction that never commits leaves a gap in Seq and nothing else.
//
// All of Persist's rules on records hold. There are at most 100 with what the
// caller adds, their envelopes and the caller's items have 4 MB together, and
// none is a dead letter.
func (s *Store) PersistItems(ctx context.Context, records []gobridge.Record) (*Batch, error) {
	b := &Batch{store: s, call: call{op: "persist in a transaction"}}
	if len(records) == 0 {
		return b, nil
	}
	b.call.partition = records[0].Partition
	if err := ctx.Err(); err != nil {
		return nil, fail(b.call.op, b.call.partition, err)
	}
	now := clean(s.now())
	if err := limits.CheckCall(records, now, s.options.MaxSkew); err != nil {
		return nil, err
	}
	for i := range records {
		if err := fitsTransaction(&records[i], len(records)); err != nil {
			return nil, &gobridge.Error{Op: b.call.op, Partition: records[i].Partition, Ref: records[i].Ref(), Err: err}
		}
	}
	if err := b.prepare(ctx, records); err != nil {
		return nil, fail(b.call.op, b.call.partition, err)
	}
	return b, nil
}

func fitsTransaction(r *gobridge.Record, n int) error {
	switch {
	case n > maxItems:
		return &gobridge.FieldError{Field: "Envelope", Problem: "records in one transaction", Size: int64(n), Limit: maxItems}
	case r.State != gobridge.StatePending:
		return &gobridge.FieldError{Field: "State", Problem: "is " + r.State.String() + "; a dead letter is persisted by Persist"}
	}
	return nil
}

func (b *Batch) prepare(ctx context.Context, records []gobridge.Record) error {
	p := &persist{store: b.store, call: b.call, refused: map[string]error{}}
	var units []*unit
	for _, wave := range p.waves(records, clean(b.store.now())) {
		units = append(units, wave...)
	}
	for _, err := range p.refused {
		return err
	}
	for _, sh := range shares(units) {
		if p.take(ctx, sh, false); sh.err != nil {
			return sh.err
		}
	}
	for _, u := range units {
		for _, r := range u.rows {
			if n := r.bytes(); n > maxBatchItem {
				return &gobridge.Error{Op: b.call.op, Partition: r.Partition, Ref: r.Ref(), Err: &gobridge.FieldError{
					Field: "Envelope", Problem: "bytes with the names of the records of its key in the same call", Size: int64(n), Limit: maxBatchItem}}
			}
		}
		items, err := p.puts(u.rows)
		if err != nil {
			return err
		}
		b.Items = append(b.Items, items...)
		b.rows = append(b.rows, u.rows...)
	}
	return nil
}

// Committed says that the transaction has been committed: the records are
// counted, and drainers of this process woken. Without it, because the process
// died, say, they are found and delivered all the same; the figures are off until
// a sweep has counted anew.
func (b *Batch) Committed(ctx context.Context) {
	figures := map[gobridge.Partition]delta{}
	var touched []gobridge.Partition
	for _, r := range b.rows {
		d := figures[r.Partition]
		d.pending++
		figures[r.Partition] = d
		touched = append(touched, r.Partition)
	}
	for p, d := range figures {
		b.store.count(ctx, call{b.call.op, p}, p, d)
	}
	b.store.announce(touched)
}

// Err says what the failure of the transaction means for the records: the
// result is an [gobridge.ErrDuplicateRecord] or [gobridge.ErrIdentityReused], with
// the record's Ref, if one of them is why, and err itself if none is.
func (b *Batch) Err(err error) error {
	var cancelled *types.TransactionCanceledException
	if !errors.As(err, &cancelled) {
		return err
	}
	for _, reason := range cancelled.CancellationReasons {
		if aws.ToString(reason.Code) != reasonCondition || len(reason.Item) == 0 {
			continue
		}
		p := parser{it: reason.Item}
		for _, r := range b.rows {
			if p.text(attrPK) != r.pk || p.text(attrSK) != r.sk {
				continue
			}
			cause := gobridge.ErrDuplicateRecord
			if string(p.bytes("hash")) != string(r.ContentHash[:]) {
				cause = gobridge.ErrIdentityReused
			}
			return &gobridge.Error{Op: b.call.op, Partition: r.Partition, Ref: r.Ref(), Err: fmt.Errorf("%w: %w", cause, err)}
		}
	}
	return err
}
