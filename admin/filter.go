package admin

import (
	"net/url"
	"strconv"
	"time"

	"gobridge"
	"gobridge/operate"
)

// filterJSON is a filter in a body; every field is optional.
type filterJSON struct {
	Route       string       `json:"route,omitempty"`
	Binding     string       `json:"binding,omitempty"`
	Partition   string       `json:"partition,omitempty"`
	ID          operate.Text `json:"id,omitempty"`
	Key         operate.Text `json:"key,omitempty"`
	NoKey       bool         `json:"no_key,omitempty"` // those without a key
	States      []string     `json:"states,omitempty"` // pending, dead
	Reason      string       `json:"reason,omitempty"`
	Error       operate.Text `json:"error,omitempty"`
	EndedFrom   time.Time    `json:"ended_from,omitzero"`
	EndedBefore time.Time    `json:"ended_before,omitzero"`
}

func toFilterJSON(f gobridge.Filter) filterJSON {
	out := filterJSON{
		Route: f.Route, Binding: f.Binding, Partition: string(f.Partition), ID: operate.Text(f.EnvelopeID),
		Key: operate.Text(f.OrderingKey), NoKey: f.HasKey && f.OrderingKey == "", Reason: f.Reason, Error: operate.Text(f.Error),
		EndedFrom: f.EndedFrom, EndedBefore: f.EndedBefore,
	}
	for _, s := range f.States {
		out.States = append(out.States, s.String())
	}
	return out
}

// filter returns the filter, or says which field is wrong.
func (j *filterJSON) filter() (gobridge.Filter, *problem) {
	out := gobridge.Filter{
		Route: j.Route, Binding: j.Binding, Partition: gobridge.Partition(j.Partition), EnvelopeID: string(j.ID),
		OrderingKey: string(j.Key), HasKey: j.NoKey || j.Key != "", Reason: j.Reason, Error: string(j.Error),
		EndedFrom: j.EndedFrom, EndedBefore: j.EndedBefore,
	}
	if j.NoKey && j.Key != "" {
		return out, invalid("no_key", "contradicts key: give one of them")
	}
	for _, name := range j.States {
		switch name {
		case gobridge.StatePending.String():
			out.States = append(out.States, gobridge.StatePending)
		case gobridge.StateDead.String():
			out.States = append(out.States, gobridge.StateDead)
		default:
			return out, invalid("states", "has %q; it takes pending and dead", name)
		}
	}
	return out, nil
}

// query writes a filter as the parameters of a URL.
func filterQuery(f gobridge.Filter) url.Values {
	q := url.Values{}
	set := func(name, value string) {
		if value != "" {
			q.Set(name, value)
		}
	}
	set("route", f.Route)
	set("binding", f.Binding)
	set("partition", string(f.Partition))
	set("id", f.EnvelopeID)
	set("key", f.OrderingKey)
	if f.HasKey && f.OrderingKey == "" {
		q.Set("no_key", "true")
	}
	set("reason", f.Reason)
	set("error", f.Error)
	for name, at := range map[string]time.Time{"ended_from": f.EndedFrom, "ended_before": f.EndedBefore} {
		if !at.IsZero() {
			q.Set(name, at.UTC().Format(time.RFC3339Nano))
		}
	}
	return q
}

// filterParameters are those that queryFilter reads.
var filterParameters = []string{"route", "binding", "partition", "id", "key", "no_key", "reason", "error", "ended_from", "ended_before"}

// queryFilter reads what filterQuery writes.
func queryFilter(q url.Values) (gobridge.Filter, *problem) {
	j := filterJSON{
		Route: q.Get("route"), Binding: q.Get("binding"), Partition: q.Get("partition"), ID: operate.Text(q.Get("id")),
		Key: operate.Text(q.Get("key")), Reason: q.Get("reason"), Error: operate.Text(q.Get("error")),
	}
	var p *problem
	if j.NoKey, p = queryBool(q, "no_key"); p != nil {
		return gobridge.Filter{}, p
	}
	for name, at := range map[string]*time.Time{"ended_from": &j.EndedFrom, "ended_before": &j.EndedBefore} {
		if !q.Has(name) {
			continue
		}
		t, err := time.Parse(time.RFC3339Nano, q.Get(name))
		if err != nil {
			return gobridge.Filter{}, invalid(name, "is no time as RFC 3339 has it, like 2026-01-02T03:04:05Z")
		}
		*at = t
	}
	return j.filter()
}

func queryBool(q url.Values, name string) (bool, *problem) {
	if !q.Has(name) {
		return false, nil
	}
	v, err := strconv.ParseBool(q.Get(name))
	if err != nil {
		return false, invalid(name, "is neither true nor false")
	}
	return v, nil
}

func queryInt(q url.Values, name string, otherwise, most int) (int, *problem) {
	if !q.Has(name) {
		return otherwise, nil
	}
	v, err := strconv.Atoi(q.Get(name))
	if err != nil || v < 1 || v > most {
		return 0, invalid(name, "is not a number from 1 to %d", most)
	}
	return v, nil
}

// targetOf reads a target.
func targetOf(field, text string) (operate.Target, *problem) {
	t, err := operate.ParseTarget(text)
	if err != nil {
		return t, invalid(field, "%v", err)
	}
	return t, nil
}
