package leasetest

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"gobridge"
)

// bug is one way to break the contract: what it replaces, and which case must
// notice. Each gets the sound lease store that it breaks.
type bug struct {
	caughtBy string
	name     string

	acquire acquireFunc
	renew   renewFunc
	release func(broken, context.Context, gobridge.Lease) error
	leases  func(broken, context.Context) ([]gobridge.Lease, error)
}

type (
	acquireFunc func(broken, context.Context, gobridge.AcquireRequest) (gobridge.Lease, error)
	renewFunc   func(broken, context.Context, []gobridge.Lease) ([]gobridge.Lease, error)
)

// broken is a handle on leases with a bug.
type broken struct {
	gobridge.LeaseStore
	bug *bug
	now func() time.Time
}

func (b broken) Acquire(ctx context.Context, r gobridge.AcquireRequest) (gobridge.Lease, error) {
	if b.bug.acquire == nil {
		return b.LeaseStore.Acquire(ctx, r)
	}
	return b.bug.acquire(b, ctx, r)
}

func (b broken) Renew(ctx context.Context, leases []gobridge.Lease) ([]gobridge.Lease, error) {
	if b.bug.renew == nil {
		return b.LeaseStore.Renew(ctx, leases)
	}
	return b.bug.renew(b, ctx, leases)
}

func (b broken) Release(ctx context.Context, lease gobridge.Lease) error {
	if b.bug.release == nil {
		return b.LeaseStore.Release(ctx, lease)
	}
	return b.bug.release(b, ctx, lease)
}

func (b broken) Leases(ctx context.Context) ([]gobridge.Lease, error) {
	if b.bug.leases == nil {
		return b.LeaseStore.Leases(ctx)
	}
	return b.bug.leases(b, ctx)
}

// current returns a partition's lease as it stands, a zero one if there is none.
func (b broken) current(ctx context.Context, p gobridge.Partition) gobridge.Lease {
	leases, _ := b.LeaseStore.Leases(ctx)
	for _, lease := range leases {
		if lease.Partition == p {
			return lease
		}
	}
	return gobridge.Lease{}
}

// seize takes a lease whoever holds it.
func (b broken) seize(ctx context.Context, r gobridge.AcquireRequest) (gobridge.Lease, error) {
	for {
		r.Observed = b.current(ctx, r.Partition).Revision
		lease, err := b.LeaseStore.Acquire(ctx, r)
		if !errors.Is(err, gobridge.ErrLeaseHeld) {
			return lease, err
		}
	}
}

// seizeWhen makes an acquire that seizes the lease on a condition.
func seizeWhen(is func(b broken, r gobridge.AcquireRequest, now gobridge.Lease) bool) acquireFunc {
	return func(b broken, ctx context.Context, r gobridge.AcquireRequest) (gobridge.Lease, error) {
		if is(b, r, b.current(ctx, r.Partition)) {
			return b.seize(ctx, r)
		}
		return b.LeaseStore.Acquire(ctx, r)
	}
}

// refuseWhen makes an acquire that refuses on a condition.
func refuseWhen(is func(r gobridge.AcquireRequest, now gobridge.Lease) bool) acquireFunc {
	return func(b broken, ctx context.Context, r gobridge.AcquireRequest) (gobridge.Lease, error) {
		if is(r, b.current(ctx, r.Partition)) {
			return gobridge.Lease{}, gobridge.ErrLeaseHeld
		}
		return b.LeaseStore.Acquire(ctx, r)
	}
}

// asking makes an acquire that asks for something else.
func asking(change func(*gobridge.AcquireRequest)) acquireFunc {
	return func(b broken, ctx context.Context, r gobridge.AcquireRequest) (gobridge.Lease, error) {
		change(&r)
		return b.LeaseStore.Acquire(ctx, r)
	}
}

// answering makes an acquire that answers something else.
func answering(change func(gobridge.AcquireRequest, *gobridge.Lease)) acquireFunc {
	return func(b broken, ctx context.Context, r gobridge.AcquireRequest) (gobridge.Lease, error) {
		lease, err := b.LeaseStore.Acquire(ctx, r)
		change(r, &lease)
		return lease, err
	}
}

// renewing makes a renew whose results are changed.
func renewing(change func(was gobridge.Lease, now *gobridge.Lease)) renewFunc {
	return func(b broken, ctx context.Context, leases []gobridge.Lease) ([]gobridge.Lease, error) {
		out, err := b.LeaseStore.Renew(ctx, leases)
		for i := range out {
			change(leases[i], &out[i])
		}
		return out, err
	}
}

// asCurrent gives the lease the token that its partition has now, if it is the
// same owner's.
func (b broken) asCurrent(ctx context.Context, lease gobridge.Lease) gobridge.Lease {
	if now := b.current(ctx, lease.Partition); now.Token.Owner == lease.Token.Owner {
		lease.Token = now.Token
	}
	return lease
}

// tooLate makes an acquire that looks, waits until another one has looked too,
// and then takes what it saw free, if the request is one to be broken.
func tooLate(is func(gobridge.AcquireRequest) bool) acquireFunc {
	const lookers = 2
	var looked sync.WaitGroup
	looked.Add(lookers)
	var mu sync.Mutex
	count := 0
	return func(b broken, ctx context.Context, r gobridge.AcquireRequest) (gobridge.Lease, error) {
		mu.Lock()
		mine := is(r) && count < lookers
		if mine {
			count++
		}
		mu.Unlock()
		if !mine {
			return b.LeaseStore.Acquire(ctx, r)
		}
		looked.Done()
		looked.Wait()
		return b.seize(ctx, r)
	}
}

func bugs() []bug {
	return slices.Concat(acquireBugs(), versionBugs(), renewBugs(), peopleBugs(), releaseBugs(), otherBugs())
}

func acquireBugs() []bug {
	return []bug{
		{
			caughtBy: "AcquireTakesWhatNobodyHolds", name: "no revision",
			acquire: answering(func(_ gobridge.AcquireRequest, l *gobridge.Lease) { l.Revision = 0 }),
		},
		{
			caughtBy: "AcquireTakesWhatNobodyHolds", name: "no term",
			acquire: answering(func(_ gobridge.AcquireRequest, l *gobridge.Lease) { l.Term = 0 }),
		},
		{
			caughtBy: "AcquireOfAHeldLeaseIsRefused", name: "takes what is held",
			acquire: seizeWhen(func(broken, gobridge.AcquireRequest, gobridge.Lease) bool { return true }),
		},
		{
			caughtBy: "AcquireByTheHolderItselfIsRefused", name: "takes what has its name",
			acquire: seizeWhen(func(_ broken, r gobridge.AcquireRequest, now gobridge.Lease) bool { return r.Owner == now.Token.Owner }),
		},
		{
			caughtBy: "AcquireJudgesNoExpiry", name: "compares clocks",
			acquire: seizeWhen(func(b broken, _ gobridge.AcquireRequest, now gobridge.Lease) bool {
				return b.now().Sub(now.RenewedAt) > now.Term
			}),
		},
		{
			caughtBy: "AcquireTakesOverWhatIsUnchanged", name: "ignores Observed",
			acquire: asking(func(r *gobridge.AcquireRequest) { r.Observed = 0 }),
		},
		{
			caughtBy: "AcquireTakesOverWhatIsUnchanged", name: "keeps the first term",
			acquire: answering(func(_ gobridge.AcquireRequest, l *gobridge.Lease) { l.Term = term }),
		},
		{
			caughtBy: "AcquireRefusesWhatHasChanged", name: "any Observed will do",
			acquire: seizeWhen(func(_ broken, r gobridge.AcquireRequest, _ gobridge.Lease) bool { return r.Observed != 0 }),
		},
		{
			caughtBy: "AcquireRefusesWhatHasChanged", name: "an older Observed will do",
			acquire: seizeWhen(func(_ broken, r gobridge.AcquireRequest, now gobridge.Lease) bool {
				return r.Observed > 0 && r.Observed < now.Revision
			}),
		},
		{
			caughtBy: "AcquireRefusesWhatHasChanged", name: "a newer Observed will do",
			acquire: seizeWhen(func(_ broken, r gobridge.AcquireRequest, now gobridge.Lease) bool { return r.Observed > now.Revision }),
		},
		{
			caughtBy: "AcquireOfAReleasedLeaseIgnoresObserved", name: "Observed must match always",
			acquire: refuseWhen(func(r gobridge.AcquireRequest, now gobridge.Lease) bool {
				return r.Observed != 0 && r.Observed != now.Revision
			}),
		},
		{
			caughtBy: "AcquireWithObservedOfAnUnknownLease", name: "Observed means that there is one",
			acquire: refuseWhen(func(r gobridge.AcquireRequest, now gobridge.Lease) bool {
				return r.Observed != 0 && now.Revision == 0
			}),
		},
		{
			caughtBy: "AcquireRefusesInvalidArguments", name: "makes up an owner",
			acquire: asking(func(r *gobridge.AcquireRequest) { r.Owner += "x" }),
		},
		{
			caughtBy: "AcquireRefusesInvalidArguments", name: "makes up a term",
			acquire: asking(func(r *gobridge.AcquireRequest) { r.Term = max(r.Term, 1) }),
		},
	}
}

func versionBugs() []bug {
	return []bug{
		{
			caughtBy: "VersionsGrowAcrossTakeovers", name: "a takeover keeps the version",
			acquire: answering(func(r gobridge.AcquireRequest, l *gobridge.Lease) {
				if r.Observed != 0 {
					l.Token.Version--
				}
			}),
		},
		{
			caughtBy: "VersionsGrowAcrossReleases", name: "a free lease starts at one",
			acquire: answering(func(r gobridge.AcquireRequest, l *gobridge.Lease) {
				if r.Observed == 0 {
					l.Token.Version = 1
				}
			}),
		},
		{
			caughtBy: "VersionsAreAboveMinVersion", name: "ignores MinVersion",
			acquire: asking(func(r *gobridge.AcquireRequest) { r.MinVersion = 0 }),
		},
		{
			caughtBy: "VersionsAreAboveMinVersion", name: "takes MinVersion itself",
			acquire: asking(func(r *gobridge.AcquireRequest) { r.MinVersion = max(r.MinVersion, 1) - 1 }),
		},
		{
			caughtBy: "VersionsAreAboveMinVersion", name: "a low MinVersion lowers the version",
			acquire: answering(func(r gobridge.AcquireRequest, l *gobridge.Lease) { l.Token.Version = r.MinVersion + 1 }),
		},
		{
			caughtBy: "RenewKeepsTheVersion", name: "a renewal counts the version up",
			renew: renewing(func(_ gobridge.Lease, now *gobridge.Lease) { now.Token.Version++ }),
		},
		{
			caughtBy: "OneHolderPerVersion", name: "two acquisitions share a version",
			acquire: answering(func(_ gobridge.AcquireRequest, l *gobridge.Lease) { l.Token.Version = (l.Token.Version + 1) / 2 }),
		},
	}
}

func renewBugs() []bug {
	return []bug{
		{
			caughtBy: "RenewGivesANewRevision", name: "the revision stays",
			renew: renewing(func(was gobridge.Lease, now *gobridge.Lease) { now.Revision = was.Revision }),
		},
		{
			caughtBy: "RenewGivesANewRevision", name: "writes into what it was handed",
			renew: func(b broken, ctx context.Context, leases []gobridge.Lease) ([]gobridge.Lease, error) {
				out, err := b.LeaseStore.Renew(ctx, leases)
				copy(leases, out)
				return leases, err
			},
		},
		{
			caughtBy: "RenewOfManyLeases", name: "ten at most",
			renew: func(b broken, ctx context.Context, leases []gobridge.Lease) ([]gobridge.Lease, error) {
				return b.LeaseStore.Renew(ctx, leases[:min(len(leases), 10)])
			},
		},
		{
			caughtBy: "RenewOfNothing", name: "nothing is an error",
			renew: func(b broken, ctx context.Context, leases []gobridge.Lease) ([]gobridge.Lease, error) {
				if len(leases) == 0 {
					return nil, errors.New("no leases")
				}
				return b.LeaseStore.Renew(ctx, leases)
			},
		},
		{
			caughtBy: "RenewLeavesOutWhatWasTakenOver", name: "one lost lease fails the call",
			renew: func(b broken, ctx context.Context, leases []gobridge.Lease) ([]gobridge.Lease, error) {
				out, err := b.LeaseStore.Renew(ctx, leases)
				if len(out) < len(leases) {
					return nil, gobridge.ErrLeaseLost
				}
				return out, err
			},
		},
		{
			caughtBy: "RenewLeavesOutWhatWasTakenOver", name: "takes the lease back",
			renew: func(b broken, ctx context.Context, leases []gobridge.Lease) ([]gobridge.Lease, error) {
				leases = slices.Clone(leases)
				for i := range leases {
					leases[i].Token = b.current(ctx, leases[i].Partition).Token
				}
				return b.LeaseStore.Renew(ctx, leases)
			},
		},
		{
			caughtBy: "RenewLeavesOutWhatTheSameOwnerTookAgain", name: "compares owners only",
			renew: func(b broken, ctx context.Context, leases []gobridge.Lease) ([]gobridge.Lease, error) {
				leases = slices.Clone(leases)
				for i := range leases {
					leases[i] = b.asCurrent(ctx, leases[i])
				}
				return b.LeaseStore.Renew(ctx, leases)
			},
		},
		{
			caughtBy: "RenewLeavesOutWhatWasReleased", name: "brings it back",
			renew: func(b broken, ctx context.Context, leases []gobridge.Lease) ([]gobridge.Lease, error) {
				if now := b.current(ctx, part); now.Released {
					_, _ = b.LeaseStore.Acquire(ctx, request(now.Token.Owner))
				}
				return b.LeaseStore.Renew(ctx, leases)
			},
		},
		{
			caughtBy: "RenewLeavesOutWhatIsUnknown", name: "makes it",
			renew: func(b broken, ctx context.Context, leases []gobridge.Lease) ([]gobridge.Lease, error) {
				for _, l := range leases {
					_, _ = b.LeaseStore.Acquire(ctx, gobridge.AcquireRequest{Partition: l.Partition, Owner: l.Token.Owner, Term: l.Term})
				}
				return b.LeaseStore.Renew(ctx, leases)
			},
		},
		{
			caughtBy: "RenewStampsTheHoldersClock", name: "keeps the first stamp",
			renew: renewing(func(was gobridge.Lease, now *gobridge.Lease) { now.RenewedAt = was.RenewedAt }),
		},
		{
			caughtBy: "ARenewalOrATakeoverWins", name: "renews without looking",
			renew: func(_ broken, _ context.Context, leases []gobridge.Lease) ([]gobridge.Lease, error) {
				return leases, nil
			},
		},
		{
			caughtBy: "LostAnswerOfRenew", name: "wants the newest revision",
			renew: func(b broken, ctx context.Context, leases []gobridge.Lease) ([]gobridge.Lease, error) {
				for _, l := range leases {
					if b.current(ctx, l.Partition).Revision != l.Revision {
						return nil, nil
					}
				}
				return b.LeaseStore.Renew(ctx, leases)
			},
		},
	}
}

func peopleBugs() []bug {
	return []bug{
		{
			caughtBy: "AcquireStampsTheHoldersClock", name: "no stamp",
			acquire: answering(func(_ gobridge.AcquireRequest, l *gobridge.Lease) { l.AcquiredAt = time.Time{} }),
		},
		{
			caughtBy: "RenewKeepsWhenItWasAcquired", name: "a renewal stamps it anew",
			renew: renewing(func(_ gobridge.Lease, now *gobridge.Lease) { now.AcquiredAt = now.RenewedAt }),
		},
		{
			caughtBy: "RenewKeepsTheLastError", name: "keeps none",
			renew: func(b broken, ctx context.Context, leases []gobridge.Lease) ([]gobridge.Lease, error) {
				leases = slices.Clone(leases)
				for i := range leases {
					leases[i].LastError, leases[i].LastErrorAt = "", time.Time{}
				}
				return b.LeaseStore.Renew(ctx, leases)
			},
		},
		{
			caughtBy: "RenewKeepsTheLastError", name: "never forgets one",
			renew: renewing(func(was gobridge.Lease, now *gobridge.Lease) {
				if was.LastError == "" && was.Token.Version == 1 {
					now.LastError = "old"
				}
			}),
		},
		{
			caughtBy: "RenewKeepsTheLastError", name: "a release forgets it",
			leases: func(b broken, ctx context.Context) ([]gobridge.Lease, error) {
				leases, err := b.LeaseStore.Leases(ctx)
				for i := range leases {
					if leases[i].Released {
						leases[i].LastError = ""
					}
				}
				return leases, err
			},
		},
	}
}

func releaseBugs() []bug {
	return []bug{
		{
			caughtBy: "ReleaseFreesAtOnce", name: "leaves it to expire",
			release: func(broken, context.Context, gobridge.Lease) error { return nil },
		},
		{
			caughtBy: "ReleaseOfAnOlderRevision", name: "wants the newest revision",
			release: func(b broken, ctx context.Context, l gobridge.Lease) error {
				if b.current(ctx, l.Partition).Revision != l.Revision {
					return gobridge.ErrLeaseLost
				}
				return b.LeaseStore.Release(ctx, l)
			},
		},
		{
			caughtBy: "ReleaseOfWhatWasTakenOverIsLost", name: "says nothing",
			release: func(b broken, ctx context.Context, l gobridge.Lease) error {
				_ = b.LeaseStore.Release(ctx, l)
				return nil
			},
		},
		{
			caughtBy: "ReleaseOfWhatWasTakenOverIsLost", name: "takes it from the new holder",
			release: func(b broken, ctx context.Context, l gobridge.Lease) error {
				now := b.current(ctx, l.Partition)
				_ = b.LeaseStore.Release(ctx, now)
				if now.Token != l.Token {
					return gobridge.ErrLeaseLost
				}
				return nil
			},
		},
		{
			caughtBy: "ReleaseOfWhatTheSameOwnerTookAgainIsLost", name: "compares owners only",
			release: func(b broken, ctx context.Context, l gobridge.Lease) error {
				return b.LeaseStore.Release(ctx, b.asCurrent(ctx, l))
			},
		},
		{caughtBy: "ReleaseAgainIsSuccess", name: "once only", release: releaseOnce},
		{caughtBy: "LostAnswerOfRelease", name: "once only", release: releaseOnce},
		{
			caughtBy: "EveryChangeHasANewRevision", name: "a release keeps it",
			leases: func(b broken, ctx context.Context) ([]gobridge.Lease, error) {
				leases, err := b.LeaseStore.Leases(ctx)
				for i := range leases {
					if leases[i].Released {
						leases[i].Revision--
					}
				}
				return leases, err
			},
		},
	}
}

// releaseOnce refuses to release what is released.
func releaseOnce(b broken, ctx context.Context, l gobridge.Lease) error {
	if b.current(ctx, l.Partition).Released {
		return gobridge.ErrLeaseLost
	}
	return b.LeaseStore.Release(ctx, l)
}

func otherBugs() []bug {
	return []bug{
		{
			caughtBy: "LeasesReturnsAllInOrder", name: "any order",
			leases: func(b broken, ctx context.Context) ([]gobridge.Lease, error) {
				leases, err := b.LeaseStore.Leases(ctx)
				slices.Reverse(leases)
				return leases, err
			},
		},
		{
			caughtBy: "LeasesReturnsAllInOrder", name: "held ones only",
			leases: func(b broken, ctx context.Context) ([]gobridge.Lease, error) {
				leases, err := b.LeaseStore.Leases(ctx)
				return slices.DeleteFunc(leases, func(l gobridge.Lease) bool { return l.Released }), err
			},
		},
		{
			caughtBy: "LeasesOfNothing", name: "nothing is an error",
			leases: func(b broken, ctx context.Context) ([]gobridge.Lease, error) {
				leases, err := b.LeaseStore.Leases(ctx)
				if len(leases) == 0 {
					return nil, gobridge.ErrNotFound
				}
				return leases, err
			},
		},
		{
			caughtBy: "PartitionsAreApart", name: "cuts names at NUL",
			acquire: asking(func(r *gobridge.AcquireRequest) {
				before, _, _ := strings.Cut(string(r.Partition), "\x00")
				r.Partition = gobridge.Partition(before)
			}),
		},
		{
			caughtBy: "PartitionsAreApart", name: "ignores case",
			acquire: asking(func(r *gobridge.AcquireRequest) {
				r.Partition = gobridge.Partition(strings.ToLower(string(r.Partition)))
			}),
		},
		{
			caughtBy: "OneOfManyAcquiresWins", name: "looks, then takes",
			acquire: tooLate(func(gobridge.AcquireRequest) bool { return true }),
		},
		{
			caughtBy: "OneOfManyTakeoversWins", name: "looks, then takes",
			acquire: tooLate(func(r gobridge.AcquireRequest) bool { return r.Observed != 0 }),
		},
		{
			caughtBy: "LostAnswerOfAcquire", name: "an owner can't take over from itself",
			acquire: refuseWhen(func(r gobridge.AcquireRequest, now gobridge.Lease) bool {
				return !now.Released && r.Owner == now.Token.Owner
			}),
		},
	}
}
