package main

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"text/tabwriter"
)

// table collects the values of the runs, by part and measure in the order in
// which they were first added.
type table struct {
	part string
	rows []*row
}

type row struct {
	part, name, unit string
	values           []float64
	want             string // what it is to reach; empty when it is only told
	reached          func(float64) bool
}

func (t *table) find(name, unit string) *row {
	for _, r := range t.rows {
		if r.part == t.part && r.name == name {
			return r
		}
	}
	r := &row{part: t.part, name: name, unit: unit}
	t.rows = append(t.rows, r)
	return r
}

// add adds one run's value.
func (t *table) add(name, unit string, value float64) {
	r := t.find(name, unit)
	r.values = append(r.values, value)
}

// atMost and atLeast say what a measure's median is to reach.
func (t *table) atMost(name, unit string, bound, value float64) {
	t.add(name, unit, value)
	r := t.find(name, unit)
	r.want, r.reached = "at most "+number(bound), func(v float64) bool { return v <= bound }
}

func (t *table) atLeast(name, unit string, bound, value float64) {
	t.add(name, unit, value)
	r := t.find(name, unit)
	r.want, r.reached = "at least "+number(bound), func(v float64) bool { return v >= bound }
}

// print writes medians with their range.
func (t *table) print(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	part := ""
	for _, r := range t.rows {
		if r.part != part {
			part = r.part
			fmt.Fprintf(w, "\n%s\tmedian\tunit\trange\truns\taim\n", part)
		}
		values := slices.Sorted(slices.Values(r.values))
		median := values[len(values)/2]
		aim := ""
		if r.reached != nil {
			aim = r.want + ": reached"
			if !r.reached(median) {
				aim = r.want + ": MISSED"
			}
		}
		fmt.Fprintf(w, "  %s\t%s\t%s\t%s .. %s\t%d\t%s\n",
			r.name, number(median), r.unit, number(values[0]), number(values[len(values)-1]), len(values), aim)
	}
	return w.Flush()
}

// number writes three digits that matter.
func number(v float64) string {
	switch {
	case v >= 100 || v == float64(int64(v)):
		return strconv.FormatFloat(v, 'f', 0, 64)
	case v >= 10:
		return strconv.FormatFloat(v, 'f', 1, 64)
	case v >= 1:
		return strconv.FormatFloat(v, 'f', 2, 64)
	default:
		return strconv.FormatFloat(v, 'g', 3, 64)
	}
}
