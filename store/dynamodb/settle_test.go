package dynamodb_test

import (
	"testing"

	"gobridge"
)

// TestASettleTellsOnlyWhereSomethingMayWaitBehind: whoever is told pays read units for a
// claim.
func TestASettleTellsOnlyWhereSomethingMayWaitBehind(t *testing.T) {
	for key, want := range map[string]int{"": 0, "k": 1} {
		w := newWorld(t)
		token := gobridge.Token{Owner: "o", Version: 1}
		told := 0
		settle := func(how string, want int, do func(ref gobridge.Ref) error) {
			t.Helper()
			w.persist(records(key, how)...)
			got, err := w.s.Claim(t.Context(), gobridge.ClaimRequest{Partition: part, Token: token, Limit: 9, HeldKnown: true})
			if err != nil || len(got) != 1 {
				t.Fatalf("claimed %d: %v", len(got), err)
			}
			told = 0
			must(t, do(got[0].Ref()))
			if told != want {
				t.Errorf("with key %q, of one %s watchers are told %d times, want %d", key, how, told, want)
			}
		}
		stop := w.s.Notify(func(gobridge.Partition) { told++ })
		settle("completed", want, func(ref gobridge.Ref) error {
			return w.s.Complete(t.Context(), token, []gobridge.Completion{{Ref: ref}})
		})
		settle("buried", want, func(ref gobridge.Ref) error {
			return w.s.DeadLetter(t.Context(), token, []gobridge.Burial{{Ref: ref}})
		})
		settle("released", 1, func(ref gobridge.Ref) error {
			return w.s.Release(t.Context(), token, []gobridge.Release{{Ref: ref}})
		})
		stop()
	}
}
