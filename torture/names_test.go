package torture

// What the binary calls things.
const (
	headerAttempt = "Gobridge-Attempt"       // of a webhook delivery
	headerVersion = "Gobridge-Token-Version" // of a webhook delivery
	logTakeover   = "took over partition"    // message of the log line
)
