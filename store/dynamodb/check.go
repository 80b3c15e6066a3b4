package dynamodb

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	ddb "github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go"

	"gobridge"
)

const (
	// checkTime bounds the write of Check.
	checkTime = time.Second
	// healthTime is how long what the table answered counts, between once and twice.
	healthTime = 3 * time.Second
	// throttleShare is which share of requests may be throttled without a word:
	// autoscaling needs some to see that it is short.
	throttleShare = 10
)

// Check implements [gobridge.Checker]. It goes by what this handle's own writes came
// to in the last seconds. Only where there were none it makes one: an update whose
// condition is never true. It costs a write unit.
func (s *Store) Check(ctx context.Context) error {
	const op = "check"
	err, known := s.health.verdict()
	if !known {
		ctx, cancel := context.WithTimeout(ctx, checkTime)
		defer cancel()
		// What it comes to is in the verdict; that it came to nothing is for reads to tell.
		_, _ = s.touchItem(ctx, call{op: op}, neverUpdate())
		err, _ = s.health.verdict()
	}
	if err == nil {
		return nil
	}
	e := &gobridge.Error{Op: op, Err: fmt.Errorf("table %s: %w", s.options.Table, err)}
	if errors.Is(err, gobridge.ErrThrottled) {
		e.Hint = moreThroughput(err.Error())
	} else {
		e.Hint = "give it PutItem, UpdateItem, DeleteItem and ConditionCheckItem on the table, and leave it the rights that it has"
	}
	return e
}

// moreThroughput says what helps where there was not enough of it: DynamoDB names the
// limit (DynamoDB API Reference, ThrottlingReason).
func moreThroughput(why string) string {
	switch {
	case strings.Contains(why, "KeyRange"):
		return "wait: it goes on by itself, and more capacity does not help one hot key range; if it comes back, give the busiest route more partitions (partitions: in the configuration, while nothing waits and every process is stopped)"
	case strings.Contains(why, "MaxOnDemand"):
		return "raise the table's maximum on-demand throughput"
	case strings.Contains(why, "AccountLimit"):
		return "have the account's limit for tables of this Region raised"
	}
	return "raise the table's capacity, or make it on-demand"
}

// neverUpdate is a write that changes nothing, for there is such a row and there is
// none.
func neverUpdate() *ddb.UpdateItemInput {
	update, never := "SET #checked = :one", "attribute_exists(#PK) AND attribute_not_exists(#PK)"
	return &ddb.UpdateItemInput{
		Key: key(leasesPK, "#CHECK#"), UpdateExpression: &update, ConditionExpression: &never,
		ExpressionAttributeNames: names(update, never), ExpressionAttributeValues: item{":one": num(1)},
	}
}

// health is what the table answered lately. It is safe for concurrent use.
type health struct {
	mu          sync.Mutex
	last, now   tally
	since       time.Time // of now
	refusal     error     // of the newest write that was refused for good, nil after one that was not
	refusalTime time.Time
}

// tally counts writes, and reads that were throttled.
type tally struct {
	all, throttled int
	resource       string
}

// refusal is an error of a write that was refused for good.
type refusal struct {
	request string
	err     smithy.APIError
}

func (r *refusal) Error() string {
	return fmt.Sprintf("DynamoDB refuses %s: %s: %s", r.request, r.err.ErrorCode(), r.err.ErrorMessage())
}

func (r *refusal) Unwrap() error { return r.err }

// note takes down what a request came to.
func (h *health) note(r request, err error) {
	short := throttled(err)
	if !r.write && len(short) == 0 {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.turn()
	switch {
	case len(short) > 0:
		h.now.throttled++
		if h.now.resource == "" || strings.HasSuffix(short[0], "Exceeded") {
			h.now.resource = short[0] // a transaction does not say which limit it met
		}
	case err != nil && !answered(err):
		var api smithy.APIError
		if judge(err, false) == final && errors.As(err, &api) {
			h.refusal, h.refusalTime = &refusal{r.name, api}, time.Now()
		}
		return
	default:
		h.refusal = nil
	}
	h.now.all++
}

// turn begins a new count when the old one is old enough.
func (h *health) turn() {
	switch age := time.Since(h.since); {
	case age < healthTime:
		return
	case age < 2*healthTime:
		h.last = h.now
	default:
		h.last = tally{}
	}
	h.now, h.since = tally{}, time.Now()
}

// verdict says what is wrong, nil for nothing; known says that there were requests to
// judge by.
func (h *health) verdict() (err error, known bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.turn()
	if h.refusal != nil && time.Since(h.refusalTime) < 2*healthTime {
		return h.refusal, true
	}
	all, refused, resource := h.last.all+h.now.all, h.last.throttled+h.now.throttled, h.now.resource
	if resource == "" {
		resource = h.last.resource
	}
	if refused*throttleShare > all {
		return fmt.Errorf("%w: %d of the last %d requests to it were refused (%s) and are repeated", gobridge.ErrThrottled, refused, all, resource), true
	}
	return nil, all > 0
}

// answered reports whether an error says that a condition does not hold, or that
// another write was under way: the table takes writes.
func answered(err error) bool {
	if _, failed := failedCondition(err); failed || conflicted(err) {
		return true
	}
	var cancelled *types.TransactionCanceledException
	return errors.As(err, &cancelled) && len(throttled(err)) == 0
}

// throttledReasons returns the codes of a cancelled transaction's reasons that are
// about throughput.
func throttledReasons(err *types.TransactionCanceledException) []string {
	var out []string
	for _, reason := range err.CancellationReasons {
		if code := aws.ToString(reason.Code); strings.HasPrefix(code, "Throttling") || strings.HasPrefix(code, "ProvisionedThroughput") {
			out = append(out, code)
		}
	}
	return out
}
