package dynamodb

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"gobridge"
)

// backlogRow is a record of a made-up backlog.
type backlogRow struct {
	candidate
	claimable bool
}

func backlog(rng *rand.Rand) []backlogRow {
	out := make([]backlogRow, rng.IntN(60))
	stuck := rng.IntN(100)
	for i := range out {
		c := candidate{age: age{int64(rng.IntN(20) + 1), int64(i + 1)}, sk: fmt.Sprint(i), size: int64(rng.IntN(9))}
		if keys := rng.IntN(6); keys > 0 {
			c.key = fmt.Sprintf("k%d", keys)
		}
		out[i] = backlogRow{c, rng.IntN(100) >= stuck}
	}
	rng.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	return out
}

// oldest is the contract: walk from the oldest to the youngest.
func oldest(rows []backlogRow, limit int, maxBytes int64) (out []string) {
	sorted := slices.SortedFunc(slices.Values(rows), func(a, b backlogRow) int {
		if a.before(b.age) {
			return -1
		}
		return 1
	})
	blocked := map[string]bool{}
	var bytes int64
	for _, r := range sorted {
		if r.key != "" && blocked[r.key] {
			continue
		}
		if !r.claimable {
			blocked[r.key] = true
			continue
		}
		bytes += r.size
		if len(out) == limit || maxBytes > 0 && bytes > maxBytes && len(out) > 0 {
			break
		}
		out = append(out, r.sk)
	}
	return out
}

// picker is a way to select with bounded memory: it is shown the backlog as
// often as it likes.
type picker func(rows []backlogRow, keep, limit int, maxBytes int64) []string

func show(s *selection, rows []backlogRow) {
	for _, r := range rows {
		if r.claimable {
			s.add(r.candidate)
		} else {
			s.block(r.key, r.age)
		}
	}
}

func sks(picked []candidate) (out []string) {
	for _, c := range picked {
		out = append(out, c.sk)
	}
	return out
}

func inPasses(rows []backlogRow, keep, limit int, maxBytes int64) []string {
	s := newSelection(keep)
	for pass := 1; ; pass++ {
		show(s, rows)
		picked, short := s.pick(limit, maxBytes)
		if !short || pass == emptyPasses {
			return sks(picked)
		}
		s = s.again()
	}
}

// inOnePass does without the second look.
func inOnePass(rows []backlogRow, keep, limit int, maxBytes int64) []string {
	s := newSelection(keep)
	show(s, rows)
	picked, _ := s.pick(limit, maxBytes)
	return sks(picked)
}

// forgetful forgets the blockers that a trim has used, as one does that keeps
// blockers among the candidates.
func forgetful(rows []backlogRow, keep, limit int, maxBytes int64) []string {
	s := newSelection(keep)
	for _, r := range rows {
		show(s, []backlogRow{r})
		if len(s.blockers) > 1 {
			s.trim()
			clear(s.blockers)
		}
	}
	s.trimmed = false
	picked, _ := s.pick(limit, maxBytes)
	return sks(picked)
}

// disagreements counts how a picker differs from the contract: not the oldest,
// and nothing although something could be had.
func disagreements(pick picker) (wrong, empty int) {
	for seed := range uint64(5000) {
		rng := rand.New(rand.NewPCG(seed, 1))
		rows := backlog(rng)
		limit := 1 + rng.IntN(5)
		keep := limit * (1 + rng.IntN(3))
		maxBytes := int64(rng.IntN(2) * rng.IntN(20))
		got, want := pick(rows, keep, limit, maxBytes), oldest(rows, limit, maxBytes)
		if !slices.Equal(got, want) {
			wrong++
		}
		if len(got) == 0 && len(want) > 0 {
			empty++
		}
	}
	return wrong, empty
}

func TestSelectionIsTheOldestN(t *testing.T) {
	if wrong, empty := disagreements(inPasses); wrong != 0 || empty != 0 {
		t.Errorf("%d selections are not the oldest, %d of them are empty", wrong, empty)
	}
	if _, empty := disagreements(inOnePass); empty == 0 {
		t.Error("one pass never starves, so this test proves nothing")
	}
	if wrong, _ := disagreements(forgetful); wrong == 0 {
		t.Error("forgetting blockers changes nothing, so this test proves nothing")
	}
}

// TestSelectionMemory: a backlog of any size keeps a bounded number.
func TestSelectionMemory(t *testing.T) {
	s := newSelection(30)
	for i := range 100_000 {
		s.add(candidate{age: age{int64((i*7919)%100_000 + 1), int64(i)}, sk: fmt.Sprint(i)})
		if len(s.kept) > 60 {
			t.Fatalf("%d candidates are kept, with room for 30", len(s.kept))
		}
	}
	picked, short := s.pick(10, 0)
	if len(picked) != 10 || short || picked[9].created != 10 {
		t.Fatalf("picked %+v, short %v", picked, short)
	}
}

func TestKeysAreTheirOwnInverse(t *testing.T) {
	odd := []string{"a", "#", "%", "%23", "a#b", "\x00", "\xff", "日本", " ", "/", "OUTBOX#a#b", "\n"}
	seen := map[string]bool{}
	for _, id := range odd {
		for _, binding := range odd {
			sk := recordKey(id, binding)
			if seen[sk] {
				t.Fatalf("%q, %q has the sort key of another", id, binding)
			}
			seen[sk] = true
			ref, err := parseKeys(partitionKey("p#\xff"), sk)
			if err != nil || ref.EnvelopeID != id || ref.Binding != binding || ref.Partition != "p#\xff" {
				t.Fatalf("%q, %q came back as %+v, %v", id, binding, ref, err)
			}
		}
	}
	for _, bad := range [][2]string{{"", ""}, {"P#p", "FENCE"}, {"P#p", "OUTBOX#a"}, {"x", "OUTBOX#a#b"}, {"P#%", "OUTBOX#a#b"}} {
		if ref, err := parseKeys(bad[0], bad[1]); err == nil {
			t.Errorf("keys %q are taken as %+v", bad, ref)
		}
	}
}

func TestLongestKeysFit(t *testing.T) {
	worst := func(n int) string { return string(slices.Repeat([]byte{0xff}, n)) }
	if n := len(recordKey(worst(limits.MaxID), worst(limits.MaxBinding))); n > 1024 {
		t.Errorf("a sort key may have %d bytes", n)
	}
	if n := len(partitionKey(gobridge.Partition(worst(limits.MaxPartition)))); n > 2048 {
		t.Errorf("a partition key may have %d bytes", n)
	}
}
