// Command bench measures the main job on one machine and prints one table: the
// SQLite store, store and drainer together, and the real binary from HTTP to
// webhook. Everything stays on loopback and in a temporary folder, and every
// part is bounded in time.
//
// The machine's noise hits all runs alike, for the runs of what is compared
// take turns; the table has medians and ranges. Trust the ratios.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// settings are the command's flags.
type settings struct {
	runs    int
	length  time.Duration
	backlog int
	parts   string
}

// run measures part after part.
func run(ctx context.Context) error {
	var s settings
	flag.IntVar(&s.runs, "runs", 5, "runs of each measure")
	flag.DurationVar(&s.length, "length", 4*time.Second, "length of each run under load")
	flag.IntVar(&s.backlog, "backlog", 1_000_000, "records of the large backlog")
	flag.StringVar(&s.parts, "parts", "persist,claim,both,bridge", "what to measure")
	drain := flag.String("drain", "", "drain this database and print how long that took; used by the bench itself")
	flag.Parse()
	if *drain != "" {
		return drainFile(ctx, *drain)
	}
	t := &table{}
	begun := time.Now()
	for _, part := range []struct {
		name, title string
		measure     func(context.Context, settings, *table) error
	}{
		{"persist", "Persist, one record of 256 bytes a call, 64 producers, synchronous FULL", measurePersist},
		{"claim", "Claim of 100, SQLite", measureClaims},
		{"both", "64 closed-loop producers and the drainer on one file", measureBothSides},
		{"bridge", "HTTP to webhook through SQLite, 64 connections, 256 bytes, 1,000 keys", measureBridge},
	} {
		if !strings.Contains(","+s.parts+",", ","+part.name+",") {
			continue
		}
		t.part = part.title
		if err := part.measure(ctx, s, t); err != nil {
			return err
		}
		progress("%s: done after %s", part.name, time.Since(begun).Round(time.Second))
	}
	fmt.Printf("%s/%s, %d CPUs, %s\n", runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), runtime.Version())
	return t.print(os.Stdout)
}

func progress(format string, args ...any) { fmt.Fprintf(os.Stderr, "bench: "+format+"\n", args...) }

// measureBridge builds the binary and runs it end to end.
func measureBridge(ctx context.Context, s settings, t *table) error {
	folder, err := os.MkdirTemp("", "gobridge-bench-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(folder) }()
	binary := filepath.Join(folder, "gobridge")
	build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-o", binary, "gobridge/cmd/gobridge")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build the binary: %w\n%s", err, out)
	}
	for i := range s.runs {
		if err := endToEnd(ctx, binary, s.length, t); err != nil {
			return err
		}
		progress("bridge, run %d of %d", i+1, s.runs)
	}
	return nil
}

// inFolder calls f with a new folder and removes it afterwards.
func inFolder(f func(folder string) error) error {
	folder, err := os.MkdirTemp("", "gobridge-bench-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(folder) }()
	return f(folder)
}
