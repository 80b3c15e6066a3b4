package dynamodb_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"text/tabwriter"

	ddb "github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"gobridge"
	"gobridge/internal/fakedynamo"
	"gobridge/store/dynamodb"
	"gobridge/storetest"
)

// work is what is counted: messages that are persisted, claimed by a hundred and
// completed.
type work struct {
	payload  int // bytes; zero for an item of 1,024 bytes while it is claimed
	call     int // messages with a Persist
	keys     int // ordering keys, zero for none
	backlog  int // how many wait meanwhile
	terminal int // how many have ended and are remembered
}

const batch = 100

func (w work) String() string {
	size := fmt.Sprintf("%d KB payload", w.payload>>10)
	if w.payload == 0 {
		size = "1,024 B item"
	}
	return fmt.Sprintf("%s\t%d\t%d\t%d\t%d", size, w.call, w.keys, w.backlog, w.terminal)
}

// bill is what a message costs in a phase.
type bill struct{ calls, read, write, index float64 }

func billOf(server *fakedynamo.Server, messages int) bill {
	total := server.Total()
	server.ResetStats()
	index := 0.0
	for _, units := range total.IndexWriteUnits {
		index += units
	}
	n := float64(messages)
	return bill{float64(total.Calls) / n, total.ReadUnits / n, total.WriteUnits / n, index / n}
}

// smallPayload is how much payload makes an item of 1,024 bytes, claimed.
const smallPayload = 725

// count does the work and returns what persisting, claiming and settling cost.
func count(t *testing.T, w work) (persist, claim, settle bill) {
	t.Helper()
	db := newDatabase(t, storetest.Options{}, fakedynamo.Options{})
	s := db.open(t, nil, nil)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	size := w.payload
	if size == 0 {
		size = smallPayload
		if w.keys > 0 {
			size -= len("ordering_key") + len("key-0000")
		}
	}
	made := 0
	persistN := func(n, call int) {
		for n > 0 {
			records := make([]gobridge.Record, min(call, n))
			for i := range records {
				made++
				key := ""
				if w.keys > 0 {
					key = fmt.Sprintf("key-%04d", made%w.keys)
				}
				records[i] = record(fmt.Sprintf("0190f7a2-0000-7000-8000-%012d", made), key)
				records[i].Envelope.Payload = make([]byte, size)
			}
			must(s.Persist(t.Context(), records))
			n -= len(records)
		}
	}
	addEnded(t, db, w.terminal)
	token := gobridge.Token{Owner: "gateway-1", Version: 1}
	_, err := s.Claim(t.Context(), gobridge.ClaimRequest{Partition: part, Token: token})
	must(err)
	persistN(max(w.backlog-batch, 0), 100)
	db.server.ResetStats()
	persistN(batch, w.call)
	persist = billOf(db.server, batch)
	got, err := s.Claim(t.Context(), gobridge.ClaimRequest{Partition: part, Token: token, Limit: batch, HeldKnown: true})
	must(err)
	claim = billOf(db.server, len(got))
	done := make([]gobridge.Completion, len(got))
	for i := range got {
		done[i].Ref = got[i].Ref()
	}
	must(s.Complete(t.Context(), token, done))
	settle = billOf(db.server, len(got))
	return persist, claim, settle
}

// addEnded writes rows as ended records leave them.
func addEnded(t *testing.T, db database, n int) {
	t.Helper()
	c := client(db.server)
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			for i := w; i < n; i += 4 {
				_, err := c.PutItem(t.Context(), &ddb.PutItemInput{TableName: ptr("gobridge"), Item: map[string]types.AttributeValue{
					"PK": &types.AttributeValueMemberS{Value: "P#" + string(part)},
					"SK": &types.AttributeValueMemberS{Value: fmt.Sprintf("OUTBOX#ended-%030d#mail", i)}, "state": &types.AttributeValueMemberS{Value: "delivered"},
					"hash": &types.AttributeValueMemberB{Value: make([]byte, 120)},
				}})
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
}

func ptr[T any](v T) *T { return &v }

func (b bill) String() string {
	return fmt.Sprintf("%.2f\t%.2f\t%.2f", b.calls, b.read, b.write)
}

// TestUnitsPerMessage holds the store to what it promises.
func TestUnitsPerMessage(t *testing.T) {
	for _, c := range []struct {
		call, keys int
		most       float64
	}{{1, 0, 7.1}, {25, 0, 6.1}, {1, 100, 7.1}, {25, 100, 6.1}, {25, 1, 7.2}} {
		persist, claim, settle := count(t, work{call: c.call, keys: c.keys, backlog: 100})
		if sum := persist.write + claim.write + settle.write; sum > c.most {
			t.Errorf("persisted by %d, of %d keys, a message costs %.2f write units (%.2f persist, %.2f claim, %.2f settle), want %.2f at most",
				c.call, c.keys, sum, persist.write, claim.write, settle.write, c.most)
		}
		if claim.calls > 0.1 {
			t.Errorf("a message takes %.2f calls to claim, want 0.1 at most", claim.calls)
		}
		if claim.index != 0 {
			t.Errorf("a claim writes %.2f units of the index, want none", claim.index)
		}
	}
}

// TestUnitTable prints what messages cost: make bench-dynamodb.
func TestUnitTable(t *testing.T) {
	if os.Getenv("GOBRIDGE_DYNAMODB_UNITS") == "" {
		t.Skip("prints a table, for minutes: make bench-dynamodb")
	}
	var all []work
	for _, call := range []int{1, 25} {
		for _, payload := range []int{0, 1 << 10, 16 << 10, 100 << 10} {
			all = append(all, work{payload: payload, call: call, backlog: 100})
		}
	}
	for _, backlog := range []int{10_000, 100_000} {
		all = append(all, work{call: 25, backlog: backlog})
	}
	for _, keys := range []int{1, 100, 10_000} {
		for _, backlog := range []int{100, 10_000, 100_000} {
			all = append(all, work{call: 25, keys: keys, backlog: backlog})
		}
	}
	all = append(all, work{call: 25, backlog: 100, terminal: 100_000}, work{call: 25, keys: 100, backlog: 100, terminal: 100_000})
	var b strings.Builder
	out := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(out, "item\tby\tkeys\twaiting\tended\tPERSIST calls\tread\twrite\tCLAIM calls\tread\twrite\tSETTLE calls\tread\twrite\tALL write\tALL read\t")
	for _, w := range all {
		persist, claim, settle := count(t, w)
		fmt.Fprintf(out, "%s\t%s\t%s\t%s\t%.2f\t%.2f\t\n", w, persist, claim, settle,
			persist.write+claim.write+settle.write, persist.read+claim.read+settle.read)
	}
	must(t, out.Flush())
	fmt.Println("Units and calls per message, batches of 100:")
	fmt.Println(b.String())
	fmt.Println("Conflicts per 1,000 messages while the partition drains:")
	for _, writers := range []int{1, 4, 16} {
		fmt.Printf("  %2d writers: %.0f\n", writers, conflicts(t, writers))
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// tally counts conflicts.
type tally struct {
	mu        sync.Mutex
	conflicts float64
}

func (c *tally) Observe(e dynamodb.Event) {
	if e.Metric == dynamodb.OutboxClaimConflicts {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.conflicts += e.Value
	}
}

// conflicts drains a partition while writers persist, on a server whose
// transactions take time, and returns how often requests conflicted for every
// 1,000 messages.
func conflicts(t *testing.T, writers int) float64 {
	t.Helper()
	const each = 1600
	db := newDatabase(t, storetest.Options{}, fakedynamo.Options{Overlap: true})
	counted := &tally{}
	observed := func(o *dynamodb.Options) { o.Observer = counted }
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var wg sync.WaitGroup
	for w := range writers {
		s := db.open(t, nil, observed)
		wg.Go(func() {
			for i := range each / writers {
				if err := s.Persist(ctx, records("", fmt.Sprintf("%d-%d", w, i))); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	s := db.open(t, nil, observed)
	token := gobridge.Token{Owner: "o", Version: 1}
	for ended := 0; ended < each/writers*writers; {
		got, err := s.Claim(ctx, gobridge.ClaimRequest{Partition: part, Token: token, Limit: batch, HeldKnown: true})
		must(t, err)
		done := make([]gobridge.Completion, len(got))
		for i := range got {
			done[i].Ref = got[i].Ref()
		}
		must(t, s.Complete(ctx, token, done))
		ended += len(got)
	}
	wg.Wait()
	return counted.conflicts * 1000 / each
}
