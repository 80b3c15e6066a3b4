package console

import (
	"maps"
	"net/url"

	"gobridge"
	"gobridge/operate"
)

// step is something to do: in words, as a command, and as a page if one does it.
type step struct {
	Text    string
	Command string
	Go      *link
}

// link leads to a page. An act's page needs the role operate.
type link struct {
	Label string
	Href  string
	Act   bool
	// Danger marks what can't be taken back, and Quiet what is not the thing to do.
	Danger, Quiet bool
}

// steps turns what to do into what this console offers for it. Those who may not act
// get the commands alone.
func steps(all []operate.Step, operator bool) []step {
	out := make([]step, len(all))
	for i, s := range all {
		out[i].Text = s.Text
		if len(s.Command) == 0 {
			continue
		}
		out[i].Command = operate.CommandLine(s.Command)
		if l := linkOf(s.Command); l != nil && (operator || !l.Act) {
			out[i].Go = l
		}
	}
	return out
}

// linkOf is the page that does what a command does, nil if none.
func linkOf(command []string) *link {
	words, flags := []string{}, map[string]string{}
	for i := 1; i < len(command); i++ {
		if name := command[i]; len(name) > 2 && name[:2] == "--" && i+1 < len(command) {
			i++
			flags[name[2:]] = command[i]
		} else {
			words = append(words, name)
		}
	}
	switch {
	case command[0] == "kill" && len(words) > 0 && words[0] == "-HUP":
		return actLink(doReload, url.Values{})
	case command[0] != "gobridge" || len(words) == 0:
		return nil
	}
	verb, rest := words[0], words[1:]
	if verb == "dead" && len(rest) > 0 {
		verb, rest = "dead "+rest[0], rest[1:]
	}
	if verb == "audit" {
		return &link{Label: "Audit", Href: "/audit"}
	}
	if len(rest) == 0 {
		return nil
	}
	q := url.Values{}
	for _, name := range []string{"id", "key"} {
		if flags[name] != "" {
			q.Set(name, flags[name])
		}
	}
	q.Set("target", rest[0])
	switch verb {
	case "explain":
		return &link{Label: "Explain", Href: "/explain?" + url.Values{"q": {rest[0]}}.Encode()}
	case "dead list":
		return &link{Label: "See dead letters", Href: "/dead?" + q.Encode()}
	case "retry":
		return actLink(doRetry, q)
	case "resume":
		return actLink(doResume, q)
	case "discard":
		return actLink(doDiscard, q)
	case "dead redrive":
		return actLink(doRedrive, q)
	case "dead discard":
		return actLink(doDiscardDead, q)
	case "move":
		if len(rest) == 2 {
			q.Set("to", rest[1])
			return actLink(doMove, q)
		}
	}
	return nil
}

// actLink leads to an act's page.
func actLink(do string, q url.Values) *link {
	q = maps.Clone(q)
	q.Set("do", do)
	return &link{Label: label(do), Href: "/act?" + q.Encode(), Act: true, Danger: do == doDiscard || do == doDiscardDead}
}

func quiet(l *link) *link {
	l.Quiet = true
	return l
}

// recordActs are what can be done about a record, quietly: what should be done is
// among the steps. Of one that is held there is nothing more to hold.
func recordActs(r *operate.RecordView, held, operator bool) []link {
	route, binding, _, ok := gobridge.Partition(r.Partition).Split()
	if !operator || !ok {
		return nil
	}
	q := url.Values{"target": {route + "/" + binding}, "id": {r.ID}}
	switch r.State {
	case gobridge.StatePending.String():
		out := []link{*quiet(actLink(doRetry, q)), *actLink(doDiscard, q)}
		if held {
			return out[1:]
		}
		halt := url.Values{"target": {route + "/" + binding}}
		if r.Key != "" {
			halt.Set("key", r.Key)
		} else {
			halt.Set("id", r.ID)
		}
		return append(out, *quiet(actLink(doHalt, halt)))
	case gobridge.StateDead.String():
		return []link{*quiet(actLink(doRedrive, q)), *actLink(doDiscardDead, q)}
	}
	return nil
}

// recordHref is the page of a record.
func recordHref(target, id string) string {
	return "/record?" + url.Values{"target": {target}, "id": {id}}.Encode()
}

func bindingHref(route, binding string) string {
	return "/binding?" + url.Values{"target": {route + "/" + binding}}.Encode()
}
