//go:build race

package bridge_test

// raceDetector says that the race detector is on, under which SQLite takes ten
// times as long.
const raceDetector = true
