// Package testdisk gives tests a small disk of their own, on Linux. It needs the right to
// mount: a test that has it not is skipped, except where CI is "true", and fails there.
package testdisk
