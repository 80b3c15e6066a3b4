package torture

// What the binary calls things.
const (
	headerAttempt   = "Gobridge-Attempt"       // of a webhook delivery
	headerVersion   = "Gobridge-Token-Version" // of a webhook delivery
	headerPartition = "Gobridge-Partition"     // of a webhook delivery

	// logTakeover is in the log line of a partition that was acquired from an
	// owner who had not released it.
	logTakeover = "takeover=true"
	// logAcquired is in the log line of any partition that was acquired.
	logAcquired = "partition acquired"
	// logReleased and logLost are in the log lines of how a tenancy ends.
	logReleased = "partition released"
	logLost     = "partition lost"
	// logHandover is in the log line of a partition that its owner begins to hand over.
	logHandover = "partition is handed over"
	// logLate is in the log line of a send that was under way at the end of its lease.
	logLate = "a send was under way when the partition was lost"
)
