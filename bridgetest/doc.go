// Package bridgetest lets the tests of a service run its routes step by step:
// over a real store, in time that moves only when the test says so, with the
// outcomes of sends that the test asks for.
//
//	h := bridgetest.New(t, nil, routes) // nil: a new store in memory
//	service := NewService(h.Route("orders"))
//	service.Place(order)
//
//	h.Fail("mail", errors.New("mailbox busy")) // the next attempt
//	h.Drain()                                  // everything that is due now
//	h.RequireDelivered("mail", 0)
//	h.Advance(time.Minute)                     // its retry comes due
//	h.RequireDelivered("mail", 1)
//
// The engine is the real one. It differs from a bridge at work in three
// points, so that tests say the same each time: sends are made one after the
// other, the keys taking turns, whatever Binding.Concurrency says; Binding.Rate
// is not kept; and nothing is sent but during [Harness.Drain] and
// [Harness.Advance].
//
// Where Route.Partitions spreads a binding over several partitions, the order
// among messages of different partitions is not the same each time; that of a
// key is. There, what [Harness.Fail] and [Harness.LoseAnswer] ask for may meet
// any of them: use [Harness.Answer] to have it met by a message in particular.
//
// # Failures and attempts
//
// As in earnest, an ordinary error of the only key that there is does not count
// as an attempt, for nobody can tell it from a destination that is down. A test
// of what becomes of a message that fails for good has its sender answer
// [gobridge.Permanent], or has messages of another key get through.
package bridgetest
