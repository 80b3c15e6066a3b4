package main

import (
	"bytes"
	"os"
	"strings"
	"testing"
)

// TestRunbooksHaveRealCommands parses every command line of the runbooks.
func TestRunbooksHaveRealCommands(t *testing.T) {
	text, err := os.ReadFile("../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	count, inside := 0, false
	for _, line := range strings.Split(string(text), "\n") {
		if strings.HasPrefix(line, "```") {
			inside = line == "```sh"
			continue
		}
		if !inside {
			continue
		}
		count++
		line, _, _ = strings.Cut(line, " < ")
		args := words(line)
		if args[0] != "gobridge" {
			t.Errorf("%q is no command of gobridge", line)
			continue
		}
		root := newRoot(&bytes.Buffer{}, &bytes.Buffer{})
		cmd, rest, err := root.Find(args[1:])
		if err == nil {
			err = cmd.ParseFlags(rest)
		}
		if err == nil {
			err = cmd.ValidateArgs(cmd.Flags().Args())
		}
		if err == nil {
			err = cmd.ValidateFlagGroups()
		}
		if err != nil || !cmd.Runnable() || cmd == root {
			t.Errorf("%s: %v", line, err)
		}
	}
	if count < 30 {
		t.Errorf("only %d commands were found", count)
	}
}

// words splits a line as a shell does, as far as the runbooks need.
func words(line string) []string {
	var out []string
	var word strings.Builder
	quote := rune(0)
	for _, c := range line + " " {
		switch {
		case quote != 0 && c == quote:
			quote = 0
		case quote == 0 && (c == '\'' || c == '"'):
			quote = c
		case quote == 0 && c == ' ':
			if word.Len() > 0 {
				out = append(out, word.String())
				word.Reset()
			}
		default:
			word.WriteRune(c)
		}
	}
	return out
}

func TestStarterIsValid(t *testing.T) {
	status, stdout, _ := command(t, "init")
	if status != 0 || stdout != starter {
		t.Fatalf("init: status %d", status)
	}
	if status, _, stderr := command(t, "validate", write(t, stdout)); status != 0 {
		t.Errorf("validate: %s", stderr)
	}
}

func TestCompletionNamesRoutesAndBindings(t *testing.T) {
	path := write(t, starter)
	for _, args := range [][]string{
		{"__complete", "pause", "--config", path, "ord"},
		{"__complete", "dead", "redrive", "--config", path, "orders/"},
	} {
		status, stdout, _ := command(t, args...)
		if status != 0 || !strings.Contains(stdout, "orders/crm\n") {
			t.Errorf("%v: status %d: %s", args, status, stdout)
		}
	}
}

func TestActsWantAReason(t *testing.T) {
	status, _, stderr := command(t, "audit")
	if status != 2 || !strings.Contains(stderr, "no outbox is named: give --config FILE or --db FILE, or set $GOBRIDGE_CONFIG") {
		t.Errorf("status %d: %s", status, stderr)
	}
}

func TestDemo(t *testing.T) {
	t.Setenv(asMain, "1") // for the bridge, which is this program
	status, stdout, stderr := command(t, "demo", "--for", "4s", "--pace", "200")
	for _, want := range []string{"\nlost                      0 ", "\nout of order              0 ", "kill -9 of process", "\naccepted "} {
		if status != 0 || !strings.Contains(stdout, want) {
			t.Fatalf("status %d, want %q in\n%s%s", status, want, stdout, stderr)
		}
	}
}

// TestREADMENamesEveryRoom: each folder of the first level is in its table.
func TestREADMENamesEveryRoom(t *testing.T) {
	_, table, _ := strings.Cut(read(t, "../../README.md"), "| room |")
	entries, err := os.ReadDir("../..")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		name := e.Name()
		if !e.IsDir() || strings.HasPrefix(name, ".") || name == "bin" || name == "data" || name == "docs" {
			continue
		}
		if !strings.Contains(table, "`"+name+"`") && !strings.Contains(table, "`"+name+"/") {
			t.Errorf("the table of rooms lacks %s", name)
		}
	}
}
