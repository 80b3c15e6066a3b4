package bridge

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"time"

	"gobridge"
)

// memberPrefix begins the names of the leases that are member slots. No route's
// name begins like that.
const memberPrefix = "~member/"

func slotName(slot int) gobridge.Partition {
	return gobridge.Partition(memberPrefix + strconv.Itoa(slot))
}

// maxSlots is how many slots a process passes over that may be a dead member's
// before it waits to see whether they are.
const maxSlots = 32

// text is the owner of a member's slot: its name, and each binding with its
// number of partitions, a line each.
func (m member) text() string {
	var b strings.Builder
	b.WriteString(m.owner)
	for _, s := range m.serves {
		fmt.Fprintf(&b, "\n%s/%s %d", s.route, s.binding, s.of)
	}
	return b.String()
}

// parseMember reads what text wrote. What it doesn't understand, a newer
// version's say, it leaves out.
func parseMember(text string) member {
	lines := strings.Split(text, "\n")
	m := member{owner: lines[0]}
	for _, line := range lines[1:] {
		name, number, _ := strings.Cut(line, " ")
		route, binding, ok := strings.Cut(name, "/")
		of, err := strconv.Atoi(number)
		if ok && err == nil && 0 < of && of <= MaxPartitions {
			m.serves = append(m.serves, serves{route, binding, of})
		}
	}
	return m
}

// view is what one look at the leases showed.
type view struct {
	leases  map[gobridge.Partition]gobridge.Lease
	left    map[gobridge.Partition]time.Duration // of the held ones: until they may be taken
	members []member                             // living, this process among them, by slot
	leavers map[string]bool                      // owners that have given up their slot
	dead    []gobridge.Lease                     // slots of dead members
	first   string                               // the owner of the first living slot
	alone   bool
}

// free reports whether a partition can be had.
func (v *view) free(p gobridge.Partition) bool {
	l, ok := v.leases[p]
	return !ok || l.Released || v.left[p] <= 0
}

// look reads the leases and notes what has changed.
func (k *keeper) look(ctx context.Context) (*view, error) {
	leases, err := k.leases.Leases(ctx)
	if err != nil {
		return nil, err
	}
	seen := time.Now()
	v := &view{
		leases: map[gobridge.Partition]gobridge.Lease{}, left: map[gobridge.Partition]time.Duration{},
		leavers: map[string]bool{}, alone: true,
	}
	var slots []gobridge.Lease
	for _, l := range leases {
		v.leases[l.Partition] = l
		if !l.Released {
			v.left[l.Partition] = k.watch(l, seen)
		}
		if strings.HasPrefix(string(l.Partition), memberPrefix) {
			slots = append(slots, l)
		}
	}
	slices.SortFunc(slots, func(a, b gobridge.Lease) int { return slot(a) - slot(b) })
	own := k.slot()
	for _, l := range slots {
		m := parseMember(l.Token.Owner)
		mine := own != nil && l.Token == own.Token && l.Partition == own.Partition
		switch {
		case l.Released:
			v.leavers[m.owner] = true
			continue
		case m.owner == k.owner && !mine: // from before it lost it
			continue
		case !mine && v.left[l.Partition] <= 0:
			v.dead = append(v.dead, l)
			continue
		case !mine:
			v.alone = false
		}
		if v.first == "" {
			v.first = m.owner
		}
		v.members = append(v.members, m)
	}
	for _, m := range v.members {
		delete(v.leavers, m.owner)
	}
	return v, nil
}

func slot(l gobridge.Lease) int {
	n, err := strconv.Atoi(strings.TrimPrefix(string(l.Partition), memberPrefix))
	if err != nil {
		return -1
	}
	return n
}

// slot returns the slot that this process holds, nil for none.
func (k *keeper) slot() *gobridge.Lease {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.member
}

// me is this process as a member.
func (k *keeper) me() member { return member{k.owner, k.lineup().serves} }

// restate tells the others what this process serves now, in the slot that it has,
// if that says something else. It reports false if that is to be tried again: the
// slot was being renewed. The slot is never free meanwhile.
func (k *keeper) restate(ctx context.Context) (bool, error) {
	slot, text := k.slot(), k.me().text()
	if slot == nil || slot.Token.Owner == text {
		return true, nil
	}
	lease, err := k.leases.Acquire(ctx, gobridge.AcquireRequest{
		Partition: slot.Partition, Owner: text, Term: k.term, Observed: slot.Revision,
	})
	switch {
	case errors.Is(err, gobridge.ErrLeaseHeld):
		return false, nil
	case err != nil:
		return false, err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.member = &lease
	return true, nil
}

// join takes a slot. It reports false if there is none to be had yet.
func (k *keeper) join(ctx context.Context, v *view) (bool, error) {
	// Whoever can't read the outbox would be given partitions and not take them.
	if _, err := k.store.Stats(ctx, k.lineup().partitions[0]); err != nil {
		return false, err
	}
	me := k.me()
	for n := 0; ; n++ {
		l, known := v.leases[slotName(n)]
		switch {
		case known && !v.free(l.Partition):
			continue
		case !known && n >= maxSlots && k.doubtful(v):
			return false, nil
		}
		request := gobridge.AcquireRequest{Partition: slotName(n), Owner: me.text(), Term: k.term}
		if known && !l.Released {
			request.Observed = l.Revision
		}
		lease, err := k.leases.Acquire(ctx, request)
		if errors.Is(err, gobridge.ErrLeaseHeld) {
			continue
		}
		if err != nil {
			return false, err
		}
		k.mu.Lock()
		k.member = &lease
		k.mu.Unlock()
		return true, nil
	}
}

// doubtful reports whether a slot that is held may be a dead member's.
func (k *keeper) doubtful(v *view) bool {
	for p := range v.left {
		if strings.HasPrefix(string(p), memberPrefix) && !k.sightings[p].moved {
			return true
		}
	}
	return false
}

// living reports whether a member of that name is alive.
func (v *view) living(owner string) bool {
	return slices.ContainsFunc(v.members, func(m member) bool { return m.owner == owner })
}

// leave gives the slot up.
func (k *keeper) leave(ctx context.Context) {
	k.mu.Lock()
	lease := k.member
	k.member = nil
	k.mu.Unlock()
	if lease == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), k.term)
	defer cancel()
	if err := k.leases.Release(ctx, *lease); err != nil && !errors.Is(err, gobridge.ErrLeaseLost) {
		k.warn(ctx, "the member slot cannot be released", lease.Partition, err)
	}
}

// bury releases the slots of dead members, so that they are used again. One
// member does it for all.
func (k *keeper) bury(ctx context.Context, v *view) {
	if v.first != k.owner {
		return
	}
	for _, l := range v.dead {
		taken, err := k.leases.Acquire(ctx, gobridge.AcquireRequest{
			Partition: l.Partition, Owner: l.Token.Owner, Term: k.term, Observed: l.Revision,
		})
		if err == nil {
			err = k.leases.Release(ctx, taken)
		}
		if err != nil {
			return // it is tried again with the next look
		}
		k.log.LogAttrs(ctx, slog.LevelInfo, "a member has gone", slog.String("owner", parseMember(l.Token.Owner).owner))
	}
}

// rivals returns the living members that spread a binding of this process over
// another number of partitions.
func (k *keeper) rivals(v *view) []string {
	var out []string
	for _, m := range v.members {
		for _, s := range m.serves {
			for _, own := range k.lineup().serves {
				if s.route == own.route && s.binding == own.binding && s.of != own.of {
					out = append(out, fmt.Sprintf("%s serves %s/%s in %d", m.owner, s.route, s.binding, s.of))
				}
			}
		}
	}
	return out
}
