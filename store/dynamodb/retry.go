package dynamodb

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	ddb "github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go"
)

const (
	// attemptTime bounds one attempt of a request; the SDK has no bound.
	attemptTime = 5 * time.Second
	// graceTime is how long a write whose outcome is open is repeated after its
	// caller has given up, to learn it.
	graceTime = 5 * time.Second
	// patience bounds the attempts of a caller without a deadline.
	patience = 30 * time.Second
)

// request says what a request is.
type request struct {
	name string
	// write says that it changes something: it is then not cut off by the
	// caller's cancellation, for half a write would leave its outcome open, and
	// is repeated until there is a definite answer.
	write bool
	// casual says of a write that it does not matter whether it happens: it is cut
	// off like a read.
	casual bool
}

func (r request) pursued() bool { return r.write && !r.casual }

// verdict is what an error says about repeating a request.
type verdict uint8

const (
	final     verdict = iota // repeating is of no use
	refused                  // it did not happen, and may work later
	ambiguous                // it may have happened
)

// errOpen is in the error of a write of which nobody knows whether it happened.
var errOpen = errors.New("outcome unknown")

// send makes a request until it has a definite answer.
func send[I, O any](ctx context.Context, s *Store, c call, r request,
	do func(context.Context, *I, ...func(*ddb.Options)) (*O, error), in *I) (*O, error) {
	open := false // an earlier attempt may have happened
	started := time.Now()
	var gaveUp time.Time
	var last error
	for n := 0; ; n++ {
		if err := ctx.Err(); err != nil && !open {
			if last != nil {
				err = fmt.Errorf("%w; the last attempt: %w", err, last)
			}
			return nil, err
		}
		base := ctx
		if r.pursued() {
			base = context.WithoutCancel(ctx)
		}
		attempt, cancel := context.WithTimeout(base, attemptTime)
		out, err := do(attempt, in, withoutRetries)
		cancel()
		s.health.note(r, err)
		s.account(c, r, out, err)
		if err == nil {
			return out, nil
		}
		last = err
		v := judge(err, open)
		open = open || v == ambiguous && r.pursued()
		if v == final {
			return nil, err
		}
		if ctx.Err() != nil && gaveUp.IsZero() {
			gaveUp = time.Now()
		}
		if open {
			err = fmt.Errorf("%w: %w", errOpen, err)
		}
		switch {
		case !gaveUp.IsZero() && (!open || time.Since(gaveUp) > graceTime):
			return nil, fmt.Errorf("%w; the last attempt: %w", ctx.Err(), err)
		case time.Since(started) > patience && !hasDeadline(ctx):
			return nil, err
		}
		s.observe(Event{Metric: DynamoDBRetries, Partition: c.partition, Operation: c.op, Resource: r.name, Value: 1})
		wait := ctx
		if open {
			wait = context.WithoutCancel(ctx)
		}
		_ = s.sleep(wait, backoff(n)) // the loop looks at the context itself
	}
}

func withoutRetries(o *ddb.Options) { o.Retryer = aws.NopRetryer{} }

func hasDeadline(ctx context.Context) bool {
	_, ok := ctx.Deadline()
	return ok
}

// backoff is the wait before attempt n+2: between nothing and 20 ms, 40 ms and
// so on up to 1.3 s (AWS Architecture Blog, "Exponential Backoff And Jitter":
// full jitter).
func backoff(n int) time.Duration {
	most := 20 * time.Millisecond << min(n, 6)
	return time.Duration(rand.Int64N(int64(most)))
}

// wait sleeps unless the context ends first.
func wait(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

// judge decides whether an error is worth another attempt of the same request.
func judge(err error, open bool) verdict {
	var cancelled *types.TransactionCanceledException
	if errors.As(err, &cancelled) {
		// After an attempt whose outcome is open, a conflict may be one with that
		// very attempt: only the same token tells.
		if open && onlyConflicts(cancelled) {
			return ambiguous
		}
		return final
	}
	var api smithy.APIError
	if !errors.As(err, &api) {
		return judgeTransport(err)
	}
	switch api.ErrorCode() {
	case "ProvisionedThroughputExceededException", "ThrottlingException", "ThrottlingError", "RequestLimitExceeded",
		"TransactionConflictException", "LimitExceededException":
		return refused
	case "TransactionInProgressException", "InternalServerError", "InternalFailure", "ServiceUnavailable",
		"ServiceUnavailableException", "RequestTimeout", "RequestTimeoutException":
		return ambiguous
	}
	if api.ErrorFault() == smithy.FaultServer {
		return ambiguous
	}
	return final
}

// judgeTransport is judge for what is no answer of DynamoDB.
func judgeTransport(err error) verdict {
	var params smithy.InvalidParamsError
	var encode *smithy.SerializationError
	var dns *net.DNSError
	switch {
	case errors.As(err, &params), errors.As(err, &encode):
		return final
	case errors.As(err, &dns):
		return refused // the name was not found, so nothing was sent
	default:
		return ambiguous
	}
}

func onlyConflicts(err *types.TransactionCanceledException) bool {
	conflict := false
	for _, reason := range err.CancellationReasons {
		switch aws.ToString(reason.Code) {
		case "None", "":
		case reasonConflict:
			conflict = true
		default:
			return false
		}
	}
	return conflict
}

// The codes of reasons why a transaction was cancelled.
const (
	reasonConflict  = "TransactionConflict"
	reasonCondition = "ConditionalCheckFailed"
)

// failedCondition returns the row that a condition was not true of; ok says
// that the error is that.
func failedCondition(err error) (it item, ok bool) {
	var failed *types.ConditionalCheckFailedException
	if errors.As(err, &failed) {
		return failed.Item, true
	}
	return nil, false
}

// account tells the observer what a request came to.
func (s *Store) account(c call, r request, out any, err error) {
	if s.observer == nil {
		return
	}
	event := func(m Metric, resource string, v float64) {
		if v != 0 {
			s.observer.Observe(Event{Metric: m, Partition: c.partition, Operation: c.op, Resource: resource, Value: v})
		}
	}
	event(DynamoDBCalls, r.name, 1)
	if err != nil {
		for _, resource := range throttled(err) {
			event(DynamoDBThrottles, resource, 1)
		}
		if conflicted(err) {
			event(OutboxClaimConflicts, r.name, 1)
		}
		return
	}
	metric := DynamoDBReadUnits
	if r.write {
		metric = DynamoDBWriteUnits
	}
	for _, used := range consumed(out) {
		if used.Table == nil && len(used.GlobalSecondaryIndexes) == 0 {
			event(metric, "table", aws.ToFloat64(used.CapacityUnits))
			continue
		}
		if used.Table != nil {
			event(metric, "table", aws.ToFloat64(used.Table.CapacityUnits))
		}
		for name, index := range used.GlobalSecondaryIndexes {
			event(metric, name, aws.ToFloat64(index.CapacityUnits))
		}
	}
}

func conflicted(err error) bool {
	var conflict *types.TransactionConflictException
	if errors.As(err, &conflict) {
		return true
	}
	var cancelled *types.TransactionCanceledException
	if errors.As(err, &cancelled) {
		for _, reason := range cancelled.CancellationReasons {
			if aws.ToString(reason.Code) == reasonConflict {
				return true
			}
		}
	}
	return false
}

// throttled returns what DynamoDB says was short, if it was that.
func throttled(err error) []string {
	var reasons []types.ThrottlingReason
	var exceeded *types.ProvisionedThroughputExceededException
	var throttling *types.ThrottlingException
	var limit *types.RequestLimitExceeded
	var cancelled *types.TransactionCanceledException
	switch {
	case err == nil:
		return nil
	case errors.As(err, &cancelled):
		return throttledReasons(cancelled)
	case errors.As(err, &exceeded):
		reasons = exceeded.ThrottlingReasons
	case errors.As(err, &throttling):
		reasons = throttling.ThrottlingReasons
	case errors.As(err, &limit):
		reasons = limit.ThrottlingReasons
	default:
		return nil
	}
	if len(reasons) == 0 {
		return []string{"unknown"}
	}
	out := make([]string, len(reasons))
	for i, r := range reasons {
		out[i] = aws.ToString(r.Reason)
	}
	return out
}

func consumed(out any) []types.ConsumedCapacity {
	one := func(c *types.ConsumedCapacity) []types.ConsumedCapacity {
		if c == nil {
			return nil
		}
		return []types.ConsumedCapacity{*c}
	}
	switch out := out.(type) {
	case *ddb.GetItemOutput:
		return one(out.ConsumedCapacity)
	case *ddb.PutItemOutput:
		return one(out.ConsumedCapacity)
	case *ddb.UpdateItemOutput:
		return one(out.ConsumedCapacity)
	case *ddb.DeleteItemOutput:
		return one(out.ConsumedCapacity)
	case *ddb.QueryOutput:
		return one(out.ConsumedCapacity)
	case *ddb.BatchGetItemOutput:
		return out.ConsumedCapacity
	case *ddb.TransactWriteItemsOutput:
		return out.ConsumedCapacity
	}
	return nil
}

func (s *Store) observe(e Event) {
	if s.observer != nil {
		s.observer.Observe(e)
	}
}
