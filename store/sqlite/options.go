package sqlite

import (
	"log/slog"
	"time"
)

// Options configure a [Store]. The zero value of every field works.
type Options struct {
	// Now is the clock; time.Now when nil.
	Now func() time.Time

	// Retention is how long the identities of ended records are kept, which is
	// the window in which a repeated message is recognised; 24 h when zero.
	Retention time.Duration
	// DeadRetention is how long dead letters are kept; 30 days when zero.
	DeadRetention time.Duration
	// MaxDead and MaxDeadBytes bound the dead letters of a partition; 100,000
	// and 1 GiB when zero.
	MaxDead      int64
	MaxDeadBytes int64

	// StaleWindow frees claims of which nobody says that they are held; 5 min
	// when zero. It must exceed the longest send and the worst clock skew.
	StaleWindow time.Duration
	// MaxSkew is how far ahead of the clock an explicit CreatedAt may be; 5 min
	// when zero.
	MaxSkew time.Duration

	// MaxDiskShare bounds the database's share of what it and the free space of
	// its disk make together; 0.8 when zero, 1 or more is no bound. Beyond it
	// Persist answers [gobridge.ErrOutboxFull]; claims and settles go on.
	MaxDiskShare float64

	// Logger gets what operators should know; nil discards.
	Logger *slog.Logger
}

// withDefaults fills in what is zero.
func (o Options) withDefaults() Options {
	if o.Now == nil {
		o.Now = time.Now
	}
	setDefault(&o.Retention, 24*time.Hour)
	setDefault(&o.DeadRetention, 30*24*time.Hour)
	setDefault(&o.MaxDead, 100_000)
	setDefault(&o.MaxDeadBytes, 1<<30)
	setDefault(&o.StaleWindow, 5*time.Minute)
	setDefault(&o.MaxSkew, 5*time.Minute)
	setDefault(&o.MaxDiskShare, 0.8)
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o
}

func setDefault[T time.Duration | int64 | float64](field *T, value T) {
	if *field <= 0 {
		*field = value
	}
}
