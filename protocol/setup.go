package protocol

// Store is a variant of the store.
type Store uint8

const (
	// Atomic stores do each call in one step, as memory and SQLite do.
	Atomic Store = iota
	// Scanned stores take ages and store records in steps of their own, read the
	// partition record by record, and claim in several transactions, as DynamoDB
	// has it.
	Scanned
)

func (s Store) String() string {
	if s == Scanned {
		return "scanned"
	}
	return "atomic"
}

// Rule is a rule of the protocol.
type Rule uint8

// The rules that can be taken out.
const (
	// NoRule is none of them.
	NoRule Rule = iota
	// FenceCheck: no claim under a version below the newest that the store has seen.
	FenceCheck
	// HeadOfLine: a record is claimed only along with all older ones of its key.
	HeadOfLine
	// SnapshotBound: a scan ignores what was given its age after it began.
	SnapshotBound
	// SiblingLinks: a claim looks up the earlier records of a call that its scan did not see.
	SiblingLinks
	// AllLinks: a record names all earlier ones of its key in its call, not only the last.
	AllLinks
	// OlderLinks: an earlier record of the call that is not older does not hold up a later one.
	OlderLinks
	// SkipAfterFailedHead: once a record could not be claimed, no younger one of its key is.
	SkipAfterFailedHead
	// StopAtTermEnd: no send begins after the end of the own term.
	StopAtTermEnd
	// HeldTold: a claim is told what the process holds.
	HeldTold
	// ConfirmedBurial: the tail of a key waits until a dead letter is confirmed.
	ConfirmedBurial
	// SettleToken: a settle acts only on what is claimed under exactly its token.
	SettleToken
	// MonotonicStamps: no stamp is before the newest of the partition.
	MonotonicStamps
	// FreshAges: what comes behind a duplicate that is younger is given a new age.
	FreshAges
	// ObservedLease: a lease is taken over only if it is still the one that was observed.
	ObservedLease
	// TermFromRequest: a term is counted from before the request, and not revived by a late answer.
	TermFromRequest
	// StrandedAtOnce: what is claimed under the own version and not held can be claimed again.
	StrandedAtOnce
)

var ruleNames = [...]string{
	NoRule: "none", FenceCheck: "fence check", HeadOfLine: "head of line", SnapshotBound: "snapshot bound",
	SiblingLinks: "sibling links", AllLinks: "links to all earlier siblings", OlderLinks: "only older siblings hold up",
	SkipAfterFailedHead: "skip after a failed head", StopAtTermEnd: "sends stop at the lease's end",
	HeldTold: "held set told to claim", ConfirmedBurial: "tail waits for a confirmed dead letter",
	SettleToken: "settle checks the token", MonotonicStamps: "stamps never go back",
	FreshAges: "fresh ages behind a younger duplicate", ObservedLease: "takeover of the observed lease only",
	TermFromRequest: "term counted from before the request", StrandedAtOnce: "stranded records are claimable at once",
}

func (r Rule) String() string { return ruleNames[r] }

// Fault is a kind of fault, a bit each.
type Fault uint16

// The faults. Without any named, a setup has all but StoppedClock and SkewedClocks.
const (
	// LostAnswers: a call was done, and the caller does not learn of it.
	LostAnswers Fault = 1 << iota
	// Crashes: an owner or a persisting process loses all that it knows.
	Crashes
	// Pauses: an owner is paused, or cut off from the leases, for a whole term.
	Pauses
	// FailedSends: a send fails, for the moment.
	FailedSends
	// HopelessSends: a send fails for good; the record goes to the dead letters.
	HopelessSends
	// Conflicts: a record cannot be claimed, for others are at it just now.
	Conflicts
	// Handovers: an owner that holds nothing gives its lease up.
	Handovers
	// StoppedClock: an owner's clock stands still during a pause, so that it does
	// not see that its term has ended. What it still sends is what it had claimed.
	StoppedClock
)

const usualFaults = LostAnswers | Crashes | Pauses | FailedSends | HopelessSends | Conflicts | Handovers

// Setup is a case to explore. Everything in it is small.
type Setup struct {
	Name  string
	Store Store
	// Keys has the key of each record, in the order of their places in a scan:
	// "aab" are the records A and B of key a and C of key b.
	Keys string
	// Calls are calls of Persist that run side by side, each a process of its own
	// and repeated until it is answered: "AB" persists A and B. A record in
	// several calls is a duplicate in all but one.
	Calls []string
	// FastClock says that the clock of the first call's process is ahead.
	FastClock bool
	// Dead is how many records are dead letters to begin with.
	Dead int
	// Redrives is how often a person takes all dead letters back.
	Redrives int
	// Limit and Chunk are the records of a claim, and of one transaction of it.
	Limit, Chunk int
	// Faults is how many faults there are at most, of the kinds in Of.
	Faults int
	Of     Fault
	// Renewals is how often leases are renewed in view of others.
	Renewals int
	// Without takes a rule out.
	Without Rule
	// MostStates bounds the exploration; zero means 20 million.
	MostStates int
}

// Result is what an exploration found.
type Result struct {
	States int
	// Depth is the number of steps to the farthest state.
	Depth int
	// Complete says that every state was visited.
	Complete bool
	// Failure is what goes wrong, empty for nothing.
	Failure string
	// Trace is the shortest way to it, a sentence for each step.
	Trace []string
}

// Explore visits every state of a setup until something is wrong in one.
func Explore(setup Setup) Result {
	return newWorld(setup).explore()
}

func (w *world) explore() Result {
	setup := w.setup
	most := setup.MostStates
	if most == 0 {
		most = 20_000_000
	}
	f := explore(w, most)
	return Result{
		States: f.states, Depth: f.depth, Complete: !f.cut && f.bad == "", Failure: f.bad, Trace: w.tell(f.way),
	}
}
