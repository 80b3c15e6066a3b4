package sqs

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"gobridge/internal/awsbatch"
	"gobridge/internal/awsclient"
	"gobridge/internal/pause"
)

const (
	// maxDeletes is how many deletions are under way at a time, and maxChanges how
	// many changes of visibility timeouts.
	maxDeletes = 8
	maxChanges = 8
	// deleteTries is how often a deletion is tried. What is not deleted comes again
	// and is known as a duplicate.
	deleteTries   = 5
	minDeleteWait = 100 * time.Millisecond
	maxDeleteWait = 5 * time.Second
	// lastCalls bounds what is done after the end: all deletions of what is durable
	// and, again, giving back what is not.
	lastCalls = 5 * time.Second
)

// keep extends the time of what is in hand until ctx ends.
func (n *run) keep(ctx context.Context) {
	failing := false
	for pause.For(ctx, n.hand.tick()) {
		var changes sync.WaitGroup
		limit := make(chan struct{}, maxChanges)
		var mu sync.Mutex
		var failed error
		for _, some := range tens(n.hand.due()) {
			limit <- struct{}{}
			changes.Go(func() {
				defer func() { <-limit }()
				if err := n.extend(ctx, some); err != nil {
					mu.Lock()
					defer mu.Unlock()
					failed = err
				}
			})
		}
		changes.Wait()
		if failed != nil && !failing && ctx.Err() == nil {
			n.log.Warn("the visibility timeout of messages in hand could not be extended", "error", failed)
		}
		failing = failed != nil
	}
}

// tens puts parcels together that make one call.
func tens(all []*parcel) (out [][]*parcel) {
	room := 0
	for _, p := range all {
		if room < len(p.handles) || len(out) == 0 {
			out, room = append(out, nil), awsbatch.MaxEntries
		}
		out[len(out)-1] = append(out[len(out)-1], p)
		room -= len(p.handles)
	}
	return out
}

// extend gives parcels more time, in one call.
func (n *run) extend(ctx context.Context, parcels []*parcel) error {
	ctx, cancel := context.WithTimeout(ctx, min(callTime, n.options.Visibility/4))
	defer cancel()
	var handles []string
	var owners []*parcel
	for _, p := range parcels {
		for _, handle := range p.handles {
			handles, owners = append(handles, handle), append(owners, p)
		}
	}
	from := time.Now()
	failed, err := n.change(ctx, handles, n.options.Visibility)
	if err != nil {
		return err
	}
	short := map[*parcel]bool{}
	for _, f := range failed {
		i, bad := strconv.Atoi(aws.ToString(f.Id))
		if bad != nil || i < 0 || i >= len(owners) {
			return fmt.Errorf("the queue answers for a message %q that it was not asked for", aws.ToString(f.Id))
		}
		short[owners[i]] = true
		// If the sender is to blame, it is not in flight, or has been for twelve hours.
		if !f.SenderFault || n.hand.gone(owners[i]) {
			err = awsclient.Entry(f.Code, f.Message, f.SenderFault)
		}
	}
	for _, p := range parcels {
		if !short[p] {
			n.hand.extended(p, from)
		}
	}
	return err
}

// change sets the visibility timeout of up to ten messages.
func (n *run) change(ctx context.Context, handles []string, to time.Duration) ([]types.BatchResultErrorEntry, error) {
	url, err := n.conn.resolve(ctx, n.queue)
	if err != nil {
		return nil, err
	}
	in := &sqs.ChangeMessageVisibilityBatchInput{QueueUrl: &url}
	for i, handle := range handles {
		in.Entries = append(in.Entries, types.ChangeMessageVisibilityBatchRequestEntry{
			Id: awsbatch.ID(i), ReceiptHandle: &handle, VisibilityTimeout: int32(to.Seconds()),
		})
	}
	out, err := n.conn.client.ChangeMessageVisibilityBatch(ctx, in)
	if err != nil {
		return nil, err
	}
	return out.Failed, nil
}

// giveBack makes visible what is left in hand, the youngest first: so no message of a
// group is visible while an older one is in flight, which locks the group.
// A poll that was cut off just now must not be the one that gets them.
func (n *run) giveBack(ctx context.Context) {
	var handles []string
	for _, p := range n.hand.rest() {
		handles = append(handles, p.handles...)
	}
	if len(handles) > 0 && n.cut.Load() {
		pause.For(ctx, lastPoll)
	}
	slices.Reverse(handles)
	ctx, cancel := context.WithTimeout(ctx, lastCalls)
	defer cancel()
	var changes sync.WaitGroup
	limit := make(chan struct{}, maxChanges)
	if n.queue.fifo() {
		limit = make(chan struct{}, 1)
	}
	for tens := range slices.Chunk(handles, awsbatch.MaxEntries) {
		limit <- struct{}{}
		changes.Go(func() {
			defer func() { <-limit }()
			if _, err := n.change(ctx, tens, 0); err != nil {
				n.log.Debug("messages were not given back; they come again by themselves", "error", err)
			}
		})
	}
	changes.Wait()
}

// delete deletes what is durable until there is no more of it.
func (n *run) delete(ctx context.Context) {
	for p := range n.kept {
		batch := []*parcel{p}
		for count := len(p.messages); count < awsbatch.MaxEntries; {
			select {
			case more, ok := <-n.kept:
				if ok {
					batch = append(batch, more)
					count += len(more.messages)
					continue
				}
			default:
			}
			break
		}
		var handles []string
		for _, p := range batch {
			handles = append(handles, p.handles...)
		}
		for tens := range slices.Chunk(handles, awsbatch.MaxEntries) {
			n.deleteAll(ctx, tens)
		}
		for _, p := range batch {
			n.drop(p)
		}
	}
}

// deleteAll deletes up to ten messages, and tries again what failed.
func (n *run) deleteAll(ctx context.Context, handles []string) {
	var err error
	for try := range deleteTries {
		if try > 0 && !pause.For(ctx, pause.Backoff(try, minDeleteWait, maxDeleteWait)) || ctx.Err() != nil {
			n.undeleted.Add(int64(len(handles)))
			return
		}
		if handles, err = n.deleteOnce(ctx, handles); len(handles) == 0 {
			return
		}
	}
	n.log.Warn(notDeleted, "count", len(handles), "error", err)
}

const notDeleted = "messages are durable but could not be deleted from the queue; they come again as duplicates"

// sayUndeleted tells what there was no time for at the end.
func (n *run) sayUndeleted() {
	if count := n.undeleted.Load(); count > 0 {
		n.log.Warn(notDeleted, "count", count, "error", errTooLate)
	}
}

var errTooLate = errors.New("the source ends, and the queue did not answer in time")

// deleteOnce returns what is to be tried again, and why.
func (n *run) deleteOnce(ctx context.Context, handles []string) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	url, err := n.conn.resolve(ctx, n.queue)
	if err != nil {
		return handles, err
	}
	in := &sqs.DeleteMessageBatchInput{QueueUrl: &url}
	for i, handle := range handles {
		in.Entries = append(in.Entries, types.DeleteMessageBatchRequestEntry{Id: awsbatch.ID(i), ReceiptHandle: &handle})
	}
	out, err := n.conn.client.DeleteMessageBatch(ctx, in)
	if err != nil {
		n.conn.missing(n.queue, err)
		return handles, err
	}
	var again []string
	for _, f := range out.Failed {
		i, bad := strconv.Atoi(aws.ToString(f.Id))
		if bad != nil || i < 0 || i >= len(handles) || f.SenderFault {
			continue // its receipt handle is void: the message comes again
		}
		again = append(again, handles[i])
		err = awsclient.Entry(f.Code, f.Message, f.SenderFault)
	}
	return again, err
}
