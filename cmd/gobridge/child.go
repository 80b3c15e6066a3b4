package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"time"
)

// child is a bridge that runs as a process of its own.
type child struct {
	cmd   *exec.Cmd
	url   string
	ended chan struct{}
}

// childPatience is how long a child may take to listen.
const childPatience = 20 * time.Second

var listening = regexp.MustCompile(`msg=listening address=(\S+)`)

// startChild runs this program with a configuration and waits until it listens.
// It is killed when ctx ends.
func startChild(ctx context.Context, file string) (*child, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	c := &child{cmd: exec.CommandContext(ctx, self, "run", file), ended: make(chan struct{})} //nolint:gosec // it is this program
	log, err := c.cmd.StderrPipe()
	if err != nil {
		return nil, err
	}
	if err := c.cmd.Start(); err != nil {
		return nil, err
	}
	found := make(chan string, 1)
	go c.follow(log, found)
	select {
	case text := <-found:
		if match := listening.FindStringSubmatch(text); match != nil {
			c.url = match[1]
			return c, nil
		}
		c.kill()
		return nil, fmt.Errorf("%w: %s", errNoBridge, strings.TrimSpace(text))
	case <-time.After(childPatience):
		c.kill()
		return nil, fmt.Errorf("%w within %s", errNoBridge, childPatience)
	}
}

// follow reads the log to its end, and hands over the line that says where it
// listens, or all there was.
func (c *child) follow(log io.Reader, found chan<- string) {
	defer close(c.ended)
	var all strings.Builder
	told := false
	for lines := bufio.NewScanner(log); lines.Scan(); {
		if told {
			continue
		}
		all.WriteString(lines.Text() + "\n")
		if listening.MatchString(lines.Text()) {
			told = true
			found <- lines.Text()
		}
	}
	_ = c.cmd.Wait() // how it ended is of no interest
	if !told {
		found <- all.String()
	}
}

func (c *child) pid() int { return c.cmd.Process.Pid }

// kill ends it at once, and waits for its end.
func (c *child) kill() {
	_ = c.cmd.Process.Kill() // it may have ended
	<-c.ended
}
