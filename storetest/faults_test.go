package storetest

import (
	"errors"
	"testing"

	"gobridge"
	"gobridge/store/memory"
)

func TestFaultyFailsBeforeAndAfter(t *testing.T) {
	real := memory.New(memory.Options{})
	var fault Fault
	var methods []string
	store := Faulty(real, func(method string) Fault {
		methods = append(methods, method)
		return fault
	})
	persist := func(id string) error { return store.Persist(t.Context(), []gobridge.Record{record(id)}) }
	known := func(id string) bool {
		_, err := real.Get(t.Context(), ref(id))
		return err == nil
	}
	fault = FailBefore
	if err := persist("a"); !errors.Is(err, ErrInjected) || known("a") {
		t.Errorf("failing before: error %v, stored: %v", err, known("a"))
	}
	fault = FailAfter
	if err := persist("b"); !errors.Is(err, ErrInjected) || !known("b") {
		t.Errorf("failing after: error %v, stored: %v", err, known("b"))
	}
	got, err := store.Claim(t.Context(), request(1, 1))
	if len(got) != 0 || !errors.Is(err, ErrInjected) {
		t.Errorf("a claim whose answer is lost returned %d records and error %v", len(got), err)
	}
	if r, _ := real.Get(t.Context(), ref("b")); r.State != gobridge.StateClaimed {
		t.Errorf("after a claim whose answer was lost the record is %s", r.State)
	}
	fault = NoFault
	if err := store.Complete(t.Context(), token(1), completions("b")); err != nil {
		t.Errorf("without a fault: %v", err)
	}
	if len(methods) != 4 || methods[2] != "Claim" {
		t.Errorf("decide was asked about %q", methods)
	}
	_, notifies := store.(gobridge.Notifier)
	_, leases := store.(gobridge.Leaser)
	if !notifies || !leases {
		t.Error("the faulty store has lost the optional powers of the memory store")
	}
}

func TestSeededFaultsRepeat(t *testing.T) {
	a, b := SeededFaults(7, 0.3), SeededFaults(7, 0.3)
	count := map[Fault]int{}
	for range 1000 {
		fault := a("Claim")
		if fault != b("Claim") {
			t.Fatal("two runs of one seed differ")
		}
		count[fault]++
	}
	if count[FailBefore] < 100 || count[FailAfter] < 100 || count[NoFault] < 600 {
		t.Errorf("a share of 0.3 gave %v", count)
	}
}
