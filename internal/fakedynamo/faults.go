package fakedynamo

import "math/rand/v2"

// Key names an item by the text of its key attributes.
type Key struct {
	Partition string
	Sort      string
}

// Call is one request, as hooks and the call log see it.
type Call struct {
	N         int64 // 1 for the server's first call
	Operation string
	Tables    []string
	Index     string
	Keys      []Key // of the items that it names, in order
	Token     string

	// Known once the call is done.
	Error      string // the error's name, "" if it succeeded
	Reasons    []string
	Cut        bool // the client got no answer
	Applied    bool // something was written
	ReadUnits  float64
	WriteUnits float64

	fault *Fault
	units map[string]*units
}

// FaultKind is what goes wrong with a call.
type FaultKind int

const (
	// CutBefore cuts the connection; nothing was done.
	CutBefore FaultKind = iota + 1
	// CutAfter does the work, then cuts the connection.
	CutAfter
	// Conflict refuses a write, or a transaction's item Fault.Item, as if another
	// transaction were running. Plain reads have no conflicts and go through.
	Conflict
	// Throttle refuses for lack of throughput, of Fault.Index if that is set. In a
	// batch nothing is processed.
	Throttle
	// Partial leaves the second half of a batch unprocessed.
	Partial
	// InternalError answers 500; nothing was done.
	InternalError
	// Unavailable answers 503; nothing was done.
	Unavailable
)

// Fault is one thing that goes wrong.
type Fault struct {
	Kind  FaultKind
	Item  int    // the transaction's item that gets the reason; taken modulo their number
	Index string // the index that throttles; "" means the table
}

func (c *Call) kind() FaultKind {
	if c.fault == nil {
		return 0
	}
	return c.fault.Kind
}

// Hooks are called around requests, outside all locks: they may call the server,
// wait, or steer other goroutines. Those that are nil are left out.
type Hooks struct {
	// Before sees a call that is about to be done and may say what goes wrong.
	Before func(*Call) *Fault
	// Prepared sees a transaction whose conditions hold and that has written
	// nothing yet. Until it returns, whatever meets the transaction conflicts.
	Prepared func(*Call)
	// Applied is called after each of a transaction's items but the last, with the
	// number that Query, Scan and BatchGetItem see by then.
	Applied func(c *Call, items int)
	// Order says in which order a transaction's items become visible; it returns a
	// permutation of the indexes below n. Without it they appear as given.
	Order func(c *Call, n int) []int
	// Page sees a page of Query or Scan that has been read and not yet answered;
	// more says whether another one follows.
	Page func(c *Call, items int, more bool)
	// After sees a call that is done and not yet answered.
	After func(*Call)
}

// SetHooks replaces the hooks; it may be called at any time.
func (s *Server) SetHooks(h Hooks) { s.hooks.Store(&h) }

func (s *Server) hook() Hooks {
	if h := s.hooks.Load(); h != nil {
		return *h
	}
	return Hooks{}
}

// Rates are the shares of calls, between 0 and 1, that each fault befalls.
type Rates struct {
	CutBefore     float64
	CutAfter      float64
	Conflict      float64
	Throttle      float64
	ThrottleIndex float64
	Index         string // that ThrottleIndex means
	Partial       float64
	InternalError float64
	Unavailable   float64
}

// Schedule makes a Before hook that draws faults of data operations from the seed
// and the number of the call: the same calls in the same order fail alike.
func Schedule(seed uint64, r Rates) func(*Call) *Fault {
	kinds := []struct {
		rate  float64
		fault Fault
	}{
		{r.CutBefore, Fault{Kind: CutBefore}}, {r.CutAfter, Fault{Kind: CutAfter}},
		{r.Conflict, Fault{Kind: Conflict}}, {r.Throttle, Fault{Kind: Throttle}},
		{r.ThrottleIndex, Fault{Kind: Throttle, Index: r.Index}}, {r.Partial, Fault{Kind: Partial}},
		{r.InternalError, Fault{Kind: InternalError}}, {r.Unavailable, Fault{Kind: Unavailable}},
	}
	return func(c *Call) *Fault {
		if !dataOperation(c.Operation) {
			return nil
		}
		random := rand.New(rand.NewPCG(seed, uint64(c.N)))
		drawn := random.Float64()
		for _, k := range kinds {
			if drawn < k.rate {
				k.fault.Item = random.IntN(100)
				return &k.fault
			}
			drawn -= k.rate
		}
		return nil
	}
}

func dataOperation(operation string) bool {
	switch operation {
	case "CreateTable", "UpdateTable", "DescribeTable", "DeleteTable", "ListTables", "UpdateTimeToLive", "DescribeTimeToLive":
		return false
	}
	return true
}
