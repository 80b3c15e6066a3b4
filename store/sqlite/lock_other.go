//go:build !linux

package sqlite

// lockHolder returns nobody: the system doesn't tell.
func lockHolder(string) (pid int, name string) { return 0, "" }
