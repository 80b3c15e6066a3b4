// Package operate is what operators ask and do: how things stand, why a message
// does not arrive, and the acts that change it, in bulk where need be. It works
// on a store, whether or not a bridge runs on it, and prints nothing, so that a
// command line, an API and a console can share it.
//
// A [Desk] is made by [New]. Its answers are values with stable JSON names.
// Where something can be done about a finding, a [Step] says what, with the
// arguments of the command that does it.
package operate
