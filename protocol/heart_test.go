package protocol

import (
	"fmt"
	"strings"
	"testing"
)

func TestHearts(t *testing.T) {
	if raced {
		t.Skip("one goroutine, in which the race detector finds nothing")
	}
	r := exploreHearts(NoHeartRule, 3, 2)
	if r.Failure != "" || !r.Complete {
		t.Fatalf("%s (%d states, complete %v)\n%s", r.Failure, r.States, r.Complete, numbered(r.Trace))
	}
	var text strings.Builder
	fmt.Fprintf(&text, "With all rules, three renewals and two faults: %d states, the farthest %d steps away, and nothing wrong in any.\n",
		r.States, r.Depth)
	for _, c := range []struct {
		without HeartRule
		failure string
	}{{StopFirst, "false renewal"}, {BeatsChecked, "two owners"}, {RowAsSeen, "false renewal"}, {ExactCover, "kept alive"}, {DoubtCovers, "kept alive"}} {
		r := exploreHearts(c.without, 3, 2)
		if !strings.HasPrefix(r.Failure, c.failure+":") {
			t.Errorf("without %q the failure is %q after %d states; want one of kind %q", c.without, r.Failure, r.States, c.failure)
			continue
		}
		fmt.Fprintf(&text, "\nWithout \"%s\", after %d states: **%s.**\n\n```\n%s```\n", c.without, r.States, r.Failure, numbered(r.Trace))
	}
	if !t.Failed() {
		check(t, "hearts", text.String())
	}
}
