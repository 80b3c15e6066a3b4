package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gobridge"
	"gobridge/bridge"
	"gobridge/config"
	"gobridge/messaging"
	"gobridge/operate"
	"gobridge/store/sqlite"
)

// TestWhatIsWrongWithACommandLine is said before anything is opened, with status 2.
func TestWhatIsWrongWithACommandLine(t *testing.T) {
	t.Setenv(configEnv, "")
	for line, want := range map[string]string{
		"dead list":                 "TARGET is missing, a route (orders) or a binding (orders/crm): gobridge dead list TARGET",
		"dead show orders/crm":      "ID is missing, a message's ID: gobridge dead show BINDING ID",
		"dead show orders/crm ''":   "ID is empty; it is a message's ID",
		"dead import":               "FILE is missing",
		"explain":                   "WHAT is missing, a message's ID, an ordering key, a binding or a route: gobridge explain WHAT",
		"explain ''":                "WHAT is empty; it is a message's ID",
		"explain '' --key":          "WHAT is empty",
		"explain a b":               `"b" is one argument too many: gobridge explain WHAT`,
		"move orders/crm":           "TO is missing",
		"status extra":              `"extra" is one argument too many: gobridge status`,
		"audit extra":               `"extra" is one argument too many: gobridge audit`,
		"discard orders --key ''":   "--key is empty; leave it out, or give it a value",
		"discard orders --id ''":    "--id is empty",
		"retry orders --key ''":     "--key is empty",
		"resume orders/crm --id ''": "--id is empty",
		"halt orders/crm --key ''":  "--key is empty",
		"dead list orders --key ''": "--key is empty",
		"dead discard orders --before '' --yes --reason x": "--before is empty",
		"dead redrive orders --cause ''":                   "--cause is empty",
		"dead redrive orders --error ''":                   "--error is empty",
		"dead export orders --after ''":                    "--after is empty",
		"dead discard orders --db ''":                      "--db is empty",
		"discard orders --config ''":                       "--config is empty",
		"discard orders -c ''":                             "--config is empty",
		"pause orders --admin '' --yes --reason x":         "--admin is empty",
		"status --db ''":                                   "--db is empty",
		"audit --config ''":                                "--config is empty",
		"explain a --admin ''":                             "--admin is empty",
		"dead show orders/crm a --db ''":                   "--db is empty",
		"try --config ''":                                  "--config is empty",
		"table ensure --config ''":                         "--config is empty",
		"table plan -c ''":                                 "--config is empty",
		"dead import - --to ''":                            "--to is empty",
		"dead export orders --out ''":                      "--out is empty",
		"dead redrive orders --max -5":                     "--max is -5; it is 0 or more",
		"dead redrive orders --pace nan":                   "--pace is NaN; it is 0 or more",
		"dead redrive orders --pace inf":                   "--pace is +Inf; it is 0 or more",
		"dead discard orders --pace -1":                    "--pace is -1; it is 0 or more",
		"discard orders --max -1":                          "--max is -1; it is 0 or more",
		"audit --limit -3":                                 "--limit is -3; it is 1 or more",
		"audit --limit 0":                                  "--limit is 0; it is 1 or more",
		"dead list orders --limit 0":                       "--limit is 0; it is from 1 to 1000",
		"dead list orders --limit -1":                      "--limit is -1; it is from 1 to 1000",
		"dead list orders --limit 5000":                    "--limit is 5000; it is from 1 to 1000",
		"demo --keys 0":                                    "--keys is 0; it is 1 or more",
		"demo --for -1s":                                   "--for is -1s; it is a time above zero",
		"demo --pace 0":                                    "--pace is 0; it is from 1 to 1000000",
		"run --config b.yaml":                              "the file is given without one: gobridge run FILE",
		"run -c b.yaml":                                    "the file is given without one: gobridge run FILE",
		"validate --config b.yaml":                         "the file is given without one: gobridge validate FILE",
	} {
		var args []string
		for _, word := range strings.Fields(line) {
			args = append(args, strings.Trim(word, "'"))
		}
		status, stdout, stderr := command(t, args...)
		if status != statusRefused || stdout != "" || !strings.Contains(stderr, want) {
			t.Errorf("%s: status %d, %q, want %q", line, status, stdout+stderr, want)
		}
	}
}

func TestHelpSaysWhatApplies(t *testing.T) {
	for _, tt := range []struct{ line, has, hasNot string }{
		{"try --help", "--config", "--admin"}, {"try --help", "--key", "--token-file"},
		{"discard --help", "last error", "died"}, {"discard --help", "--max", "--before"}, {"dead discard --help", "only those that died earlier", "last error"},
	} {
		if status, stdout, _ := command(t, words(tt.line)...); status != 0 || !strings.Contains(stdout, tt.has) || strings.Contains(stdout, tt.hasNot) {
			t.Errorf("%s: want %q and not %q in\n%s", tt.line, tt.has, tt.hasNot, stdout)
		}
	}
}

// aHalted is an outbox whose key k is halted, for in-1 was refused, and in-2 waits.
func aHalted(t *testing.T) {
	t.Helper()
	db := filepath.Join(t.TempDir(), "outbox.db")
	store, err := sqlite.OpenFile(t.Context(), db, sqlite.Options{})
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(err)
	t.Setenv(configEnv, write(t, fmt.Sprintf(`
version: 1
store: { sqlite: { path: %q } }
routes: { orders: { source: { http: { path: /orders } }, bindings: { crm: { webhook: { url: "http://127.0.0.1:1/" } } } } }
`, db)))
	ctx := t.Context()
	for _, id := range []string{"in-1", "in-2"} {
		must(store.Persist(ctx, []gobridge.Record{{Partition: "orders/crm/0", Binding: "crm", Envelope: messaging.Envelope{ID: id, OrderingKey: "k"}}}))
	}
	token := gobridge.Token{Owner: "host-1-ABCDEFGH", Version: 1}
	claimed, err := store.Claim(ctx, gobridge.ClaimRequest{Partition: "orders/crm/0", Token: token, Limit: 1, HeldKnown: true})
	must(err)
	must(store.Release(ctx, token, []gobridge.Release{{Ref: claimed[0].Ref(), Tried: gobridge.Failed, Reason: "permanent", Error: "422 no"}}))
	must(store.SetControl(ctx, gobridge.Control{Kind: gobridge.Halt, Route: "orders", Binding: "crm", OrderingKey: "k", By: token.Owner, Reason: "permanent: 422 no"}))
	must(store.Close())
}

// does runs a line that ends well.
func does(t *testing.T, line string) string {
	t.Helper()
	status, stdout, stderr := command(t, words(line)...)
	if status != 0 || stderr != "" {
		t.Errorf("%s: status %d: %s", line, status, stderr)
	}
	return stdout
}

// TestADiscardLiftsNoHalt, and says so.
func TestADiscardLiftsNoHalt(t *testing.T) {
	aHalted(t)
	const stays = "\nkey k of orders/crm stays halted; to let it go on:\n     gobridge resume orders/crm --key k\n"
	if out := does(t, "discard orders/crm --id in-1"); !strings.Contains(out, strings.TrimSuffix(stays, "\n")) || !strings.HasPrefix(out, "would discard 1 of") {
		t.Errorf("before: %s", out)
	}
	if out := does(t, "discard orders/crm --id in-1 --yes --reason void"); !strings.HasPrefix(out, "discarded 1 of") || !strings.HasSuffix(out, stays) {
		t.Errorf("done: %s", out)
	}
	if out := does(t, "explain in-2"); strings.Contains(out, "discard --id") || strings.Contains(out, "discard orders") || !strings.Contains(out, "gobridge resume orders/crm --key k") {
		t.Errorf("in-2 has not been tried: %s", out)
	}
	does(t, "resume orders/crm --key k --yes --reason x")
	if out := does(t, "discard orders/crm --id in-2 --yes --reason void"); strings.Contains(out, "halted") {
		t.Errorf("nothing is halted: %s", out)
	}
}

// TestNothingMatches: then it is said, and where to look.
func TestNothingMatches(t *testing.T) {
	aHalted(t)
	for _, tt := range []struct{ line, want string }{
		{"retry orders/crm --id nope", `nothing to retry: no record is orders/crm id "nope" pending` + "\nto see how it stands:\n     gobridge explain --id nope\n"},
		{"retry orders/crm --id nope --yes --reason x", "nothing to retry: no record is"},
		{"retry orders/crm --key nope --yes --reason x", "gobridge explain --key nope\n"},
		{"discard orders/crm --key nope", "nothing to discard: no record is"},
		{"discard orders/crm --key nope --yes --reason x", "nothing to discard: no record is"},
		{"dead discard orders/crm --yes --reason x", "gobridge status\n"},
		{"dead redrive orders --id in-1 --yes --reason x", "nothing to redrive: no record is"},
	} {
		if out := does(t, tt.line); !strings.Contains(out, tt.want) || strings.Contains(out, "asked for") || strings.Contains(out, "discarded") {
			t.Errorf("%s: %s", tt.line, out)
		}
	}
	if out := does(t, "retry orders/crm --id nope --yes --reason x --json"); !strings.Contains(out, `"done": false`) || !strings.Contains(out, "nothing to retry") {
		t.Errorf("JSON: %s", out)
	}
	if out := does(t, "retry orders/crm --yes --reason x"); out != "asked for orders/crm to be tried at once, and its destination if that is down; no message waited for a time of its own\n" {
		t.Errorf("what waits is due: %s", out)
	}
	if out := does(t, "retry orders/crm --id in-2 --yes --reason x"); !strings.HasPrefix(out, "asked for message in-2 of orders/crm") {
		t.Errorf("in-2 waits: %s", out)
	}
}

// TestAnImportTellsWhatIsHereFromWhatHasEnded.
func TestAnImportTellsWhatIsHereFromWhatHasEnded(t *testing.T) {
	aHalted(t)
	file := filepath.Join(t.TempDir(), "dead.jsonl")
	var lines strings.Builder
	for i := range 3 {
		r := gobridge.Record{Partition: "orders/crm/0", Binding: "crm", Reason: "permanent", Envelope: messaging.Envelope{ID: fmt.Sprint("d-", i)}}
		line, err := operate.EncodeLetter(&r)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&lines, "%s\n", line)
	}
	if err := os.WriteFile(file, []byte(lines.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	imported := "import " + file + " --yes --reason x"
	if out := does(t, "dead "+imported); out != "imported 3 dead letters of "+file+"; 0 are here already\n" {
		t.Error(out)
	}
	does(t, "dead discard orders/crm --max 2 --yes --reason x")
	if out := does(t, "dead "+imported); !strings.Contains(out, "imported 0 dead letters of "+file+"; 1 are here already; 2 have ended here (2 discarded): their IDs are remembered") {
		t.Error(out)
	}
	does(t, "dead discard orders/crm --yes --reason x")
	if out := does(t, "dead "+imported); strings.Contains(out, "here already") || !strings.Contains(out, "; 3 have ended here (3 discarded)") {
		t.Error(out)
	}
}

// TestWhatMendsAReload fits why it was refused: validate would say ok of most.
func TestWhatMendsAReload(t *testing.T) {
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	l := &live{path: "b.yaml"}
	unserved := &bridge.UnservedError{Partitions: []gobridge.Stats{
		{Partition: "old/crm/0of2", Pending: 2}, {Partition: "old/crm/1of2", Claimed: 1, Dead: 4},
	}}
	load := fmt.Sprintf("then have process %d on %s load it: kill -HUP %d", os.Getpid(), host, os.Getpid())
	for _, tt := range []struct {
		err  error
		want []string
	}{
		{&config.Error{}, []string{"mend the file until nothing is wrong with it: gobridge validate b.yaml", load}},
		{refusal{unserved}, []string{
			"put old/crm back into the file: ",
			"or list old/crm under parked: to let the messages wait; once that is in force, gobridge move takes them to another binding: ",
			"or end for good what it holds: gobridge discard old/crm", "or end for good what it holds: gobridge dead discard old/crm", load,
		}},
		{fmt.Errorf("%w: store", errRestart), []string{
			"put that back in the file as it was: ", load, fmt.Sprintf("or restart process %d on %s, which takes the file as it is: ", os.Getpid(), host),
		}},
		{refusal{errors.New("open f: permission denied")}, []string{"mend what it says; nothing is wrong with the file by itself: ", load}},
	} {
		var got []string
		for _, s := range l.mend(tt.err) {
			got = append(got, s.Text+": "+operate.CommandLine(s.Command))
		}
		if strings.Join(got, "\n") != strings.Join(tt.want, "\n") {
			t.Errorf("%v:\n%s\nwant\n%s", tt.err, strings.Join(got, "\n"), strings.Join(tt.want, "\n"))
		}
	}
}
