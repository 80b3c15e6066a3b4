package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"gobridge/internal/testdisk"
)

// TestDiskFullNight is the night on which something else has filled the disk.
func TestDiskFullNight(t *testing.T) {
	n := newNight(t, "", "", "")
	disk := filepath.Join(n.dir, "disk")
	if err := os.Mkdir(disk, 0o755); err != nil {
		t.Fatal(err)
	}
	testdisk.Mount(t, disk, 16<<20)
	config := fmt.Sprintf(nightConfig, "", "", n.dest.server.URL, "")
	n.configure(strings.Replace(config, "outbox.db", "disk/outbox.db", 1))
	n.dest.answers(401)
	n.start()
	n.post(202, "m-1", "a", body)
	n.says(1, "gobridge status", "", "orders/crm DOWN")

	var free unix.Statfs_t
	if err := unix.Statfs(disk, &free); err != nil {
		t.Fatal(err)
	}
	ballast := filepath.Join(disk, "ballast")
	room := int(free.Bavail)*int(free.Bsize) - 256<<10 // so that deliveries go on
	if err := os.WriteFile(ballast, make([]byte, room), 0o600); err != nil {
		t.Fatal(err)
	}
	out := n.says(1, "gobridge status", "", "STORE disk full:", "outbox full: it takes", "its disk, that of", "→ make room on the disk", "let the destinations take what waits")
	refused := 0
	eventually(t, "new messages are refused", func() bool {
		refused++
		status, _ := post(t, n.url+"/orders", body, "Idempotency-Key", fmt.Sprintf("full-%d", refused))
		return status == 503
	})
	if status, text := n.run(n.printed(out, "df -h disk/outbox.db"), ""); status != 0 || !strings.Contains(text, "tmpfs") {
		t.Errorf("df: status %d: %s", status, text)
	}
	if err := os.Remove(ballast); err != nil { // what df led to
		t.Fatal(err)
	}
	n.dest.answers(200)
	n.does(out, "gobridge retry orders/crm")
	eventually(t, "what was accepted arrives", func() bool { return len(n.dest.taken()) == refused })
	n.well()
	eventually(t, "new messages are taken", func() bool {
		status, _ := post(t, n.url+"/orders", body, "Idempotency-Key", "m-2")
		return status == 202
	})
}
