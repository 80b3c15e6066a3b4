package awsbatch_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"gobridge"
	"gobridge/internal/awsbatch"
)

// sent runs Send over entries whose values are their places, and returns the calls.
// There is none of a delivery whose entry has no target.
func sent(entries []awsbatch.Entry[int], call awsbatch.Call[int]) (calls []string, errs []error) {
	all := make([]gobridge.Delivery, len(entries))
	for i := range all {
		all[i].Seq = int64(i)
	}
	prepare := func(d *gobridge.Delivery) (e awsbatch.Entry[int], err error) {
		if e = entries[d.Seq]; e.Target == "" {
			err = errNone
		}
		return e, err
	}
	errs = awsbatch.Send(context.Background(), all, 100, prepare, func(ctx context.Context, target string, values []int, answer func(*string, error)) error {
		calls = append(calls, fmt.Sprint(target, values))
		return call(ctx, target, values, answer)
	})
	return calls, errs
}

var errNone = errors.New("there is no entry")

func entries(n, size int, target func(int) string) []awsbatch.Entry[int] {
	out := make([]awsbatch.Entry[int], n)
	for i := range out {
		out[i] = awsbatch.Entry[int]{Target: target(i), Value: i, Size: size}
	}
	return out
}

func same(int) string { return "q" }

func accept(_ context.Context, _ string, values []int, answer func(*string, error)) error {
	for i := range values {
		answer(awsbatch.ID(i), nil)
	}
	return nil
}

func TestBatchesByTargetNumberAndSize(t *testing.T) {
	for _, tt := range []struct {
		entries []awsbatch.Entry[int]
		want    []string
	}{
		{entries(12, 1, same), []string{"q[0 1 2 3 4 5 6 7 8 9]", "q[10 11]"}},
		{entries(5, 40, same), []string{"q[0 1]", "q[2 3]", "q[4]"}},
		{entries(5, 1, func(i int) string { return string(rune('a' + i%2)) }), []string{"a[0 2 4]", "b[1 3]"}},
	} {
		calls, errs := sent(tt.entries, accept)
		if !slices.Equal(calls, tt.want) || slices.ContainsFunc(errs, func(err error) bool { return err != nil }) {
			t.Errorf("calls %v, errors %v, want %v", calls, errs, tt.want)
		}
	}
}

func TestDeliveryOfWhichThereIsNoEntry(t *testing.T) {
	all := entries(3, 1, same)
	all[1].Target = ""
	calls, errs := sent(all, accept)
	kind, _ := gobridge.Classify(errs[1])
	if !slices.Equal(calls, []string{"q[0 2]"}) || errs[0] != nil || errs[2] != nil || kind != gobridge.OutcomePermanent || !errors.Is(errs[1], errNone) {
		t.Errorf("calls %v, errors %v, want the others to be sent and it to be refused for good", calls, errs)
	}
	if calls, errs := sent(nil, accept); len(calls) != 0 || len(errs) != 0 {
		t.Errorf("of nothing there are calls %v and errors %v", calls, errs)
	}
}

func TestTheEntryToBlameIsFound(t *testing.T) {
	bad := gobridge.Permanent(errors.New("bad"))
	_, errs := sent(entries(10, 1, same), func(ctx context.Context, target string, values []int, answer func(*string, error)) error {
		if slices.Contains(values, 6) {
			return bad
		}
		return accept(ctx, target, values, answer)
	})
	for i, err := range errs {
		if (err != nil) != (i == 6) {
			t.Errorf("entry %d: %v", i, err)
		}
	}
}

func TestNothingIsSentBehindATargetThatIsUnavailable(t *testing.T) {
	down := gobridge.Unavailable(errors.New("down"))
	calls, errs := sent(entries(25, 1, same), func(_ context.Context, _ string, values []int, answer func(*string, error)) error {
		if values[0] >= 10 {
			return down
		}
		return accept(context.Background(), "", values, answer)
	})
	if len(calls) != 2 || errs[9] != nil || !errors.Is(errs[10], down) || !errors.Is(errs[20], gobridge.ErrNotSent) {
		t.Errorf("calls %v, errors %v", calls, errs)
	}
}

func TestAnswersThatAreMissingOrOdd(t *testing.T) {
	odd := "x"
	_, errs := sent(entries(3, 1, same), func(_ context.Context, _ string, _ []int, answer func(*string, error)) error {
		answer(nil, nil)
		answer(&odd, nil)
		answer(awsbatch.ID(3), nil)
		answer(awsbatch.ID(1), nil)
		return nil
	})
	if errs[1] != nil || errs[0] == nil || errs[2] == nil {
		t.Errorf("errors %v, want no answer to be no success", errs)
	}
}
