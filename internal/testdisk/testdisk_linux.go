package testdisk

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// Mount makes a folder a disk of so many bytes, until the test ends.
func Mount(t testing.TB, folder string, size int64) {
	t.Helper()
	if err := unix.Mount("tmpfs", folder, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, fmt.Sprintf("size=%d", size)); err != nil {
		skip(t, fmt.Sprint(err))
	}
	t.Cleanup(func() {
		if err := unix.Unmount(folder, unix.MNT_DETACH); err != nil {
			t.Errorf("unmount: %v", err)
		}
	})
}

// With runs body with a disk of so many bytes: as root, or as the root of namespaces of
// its own, in which the same test runs once more.
func With(t *testing.T, size int64, body func(t *testing.T, disk string)) {
	t.Helper()
	if os.Geteuid() != 0 {
		inNamespace(t)
		return
	}
	disk := t.TempDir()
	Mount(t, disk, size)
	body(t, disk)
}

func inNamespace(t *testing.T) {
	t.Helper()
	command := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
	command.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}},
	}
	out, err := command.CombinedOutput()
	var failed *exec.ExitError
	switch {
	case errors.As(err, &failed):
		t.Fatalf("in a namespace of its own: %v\n%s", err, out)
	case err != nil || bytes.Contains(out, []byte("--- SKIP")):
		skip(t, fmt.Sprintf("%v in a user namespace\n%s", err, out))
	}
	t.Logf("in a namespace of its own:\n%s", out)
}

func skip(t testing.TB, why string) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatalf("mount a small disk: %s; CI runs this test", why)
	}
	t.Skipf("a disk that gets full needs a mount, and this user may not: %s", why)
}
