package sqlite

import (
	"bufio"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// writeLockByte is where in the -shm file of a database the lock of its one
// writer is (https://www.sqlite.org/walformat.html, section 2.3.1).
const writeLockByte = 120

// lockHolder returns the process that holds the write lock of a database, and
// its name; zero if nobody does, or the system doesn't tell.
func lockHolder(file string) (pid int, name string) {
	info, err := os.Stat(file + "-shm")
	if err != nil {
		return 0, ""
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, ""
	}
	locks, err := os.Open("/proc/locks")
	if err != nil {
		return 0, ""
	}
	defer locks.Close()
	for scanner := bufio.NewScanner(locks); scanner.Scan(); {
		if pid = writeLock(scanner.Text(), stat.Ino); pid > 0 {
			command, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid)) // none is fine
			return pid, strings.TrimSpace(string(command))
		}
	}
	return 0, ""
}

// writeLock reads a line of /proc/locks, like
//
//	1: POSIX  ADVISORY  WRITE 4711 00:2f:1234 120 120
//
// and returns the process if it holds the write lock in the file.
func writeLock(line string, inode uint64) int {
	fields := strings.Fields(line)
	if len(fields) != 8 || fields[3] != "WRITE" || !strings.HasSuffix(fields[5], ":"+strconv.FormatUint(inode, 10)) {
		return 0
	}
	from, err1 := strconv.Atoi(fields[6])
	to, err2 := strconv.Atoi(fields[7])
	pid, err3 := strconv.Atoi(fields[4])
	if err1 != nil || err2 != nil || err3 != nil || from > writeLockByte || to < writeLockByte {
		return 0
	}
	return pid
}
