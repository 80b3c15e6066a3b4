//go:build unix

package main

import (
	"os"
	"runtime"
	"syscall"
	"time"
)

// ownCPU is the processor time that this process has used: the generator and
// the receiver.
func ownCPU() time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		return 0
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// maxResidentMB is the most memory that a process has had resident.
func maxResidentMB(state *os.ProcessState) float64 {
	usage, ok := state.SysUsage().(*syscall.Rusage)
	if !ok {
		return 0
	}
	if runtime.GOOS == "darwin" {
		return float64(usage.Maxrss) / (1 << 20) // bytes there, KiB elsewhere
	}
	return float64(usage.Maxrss) / (1 << 10)
}
