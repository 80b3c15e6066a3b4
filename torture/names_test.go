package torture

// What the binary calls things.
const (
	headerAttempt = "Gobridge-Attempt"       // of a webhook delivery
	headerVersion = "Gobridge-Token-Version" // of a webhook delivery

	// logTakeover is in the log line of a partition that was acquired from an
	// owner who had not released it.
	logTakeover = "takeover=true"
)
