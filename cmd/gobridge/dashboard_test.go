//go:build unix

package main

import (
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"testing"
)

// TestDashboardUsesTheList: the dashboard is JSON as Grafana wants it, asks only for
// metrics that there are, by labels that they have, and names only runbooks that there
// are. Every panel has its place.
func TestDashboardUsesTheList(t *testing.T) {
	var dashboard struct {
		UID           string `json:"uid"`
		Title         string `json:"title"`
		SchemaVersion int    `json:"schemaVersion"`
		Panels        []struct {
			ID          int    `json:"id"`
			Type        string `json:"type"`
			Title       string `json:"title"`
			Description string `json:"description"`
			GridPos     struct{ H, W, X, Y int }
			Targets     []struct {
				Expr         string `json:"expr"`
				LegendFormat string `json:"legendFormat"`
			} `json:"targets"`
		} `json:"panels"`
	}
	if err := json.Unmarshal([]byte(read(t, "../../ops/grafana/gobridge.json")), &dashboard); err != nil {
		t.Fatal(err)
	}
	if dashboard.UID == "" || dashboard.Title == "" || dashboard.SchemaVersion == 0 || len(dashboard.Panels) < 20 {
		t.Fatalf("it is %+v", dashboard)
	}
	ids, cells := map[int]bool{}, map[[2]int]string{}
	for _, p := range dashboard.Panels {
		if ids[p.ID] {
			t.Errorf("%s has the ID of another panel", p.Title)
		}
		ids[p.ID] = true
		for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
			for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
				if other, taken := cells[[2]int{x, y}]; taken || x >= 24 {
					t.Fatalf("%s lies on %q, or beyond the edge", p.Title, other)
				}
				cells[[2]int{x, y}] = p.Title
			}
		}
		if p.Type != "row" && len(p.Targets) == 0 {
			t.Errorf("%s shows nothing", p.Title)
		}
		for _, target := range p.Targets {
			if !strings.Contains(target.Expr, "gobridge_") {
				t.Errorf("%s asks for %s", p.Title, target.Expr)
			}
			checkExpression(t, p.Title, target.Expr)
			for _, l := range regexp.MustCompile(`\{\{([a-z]+)\}\}`).FindAllStringSubmatch(target.LegendFormat, -1) {
				if !regexp.MustCompile(`(by|on) \([a-z, ]*\b` + l[1] + `\b`).MatchString(target.Expr) {
					t.Errorf("%s names a label %s that %s drops", p.Title, l[1], target.Expr)
				}
			}
		}
		for _, name := range regexp.MustCompile(`\bGobridge[A-Za-z]+`).FindAllString(p.Description, -1) {
			if _, err := os.Stat("../../docs/runbooks/" + name + ".md"); err != nil {
				t.Errorf("%s: %v", p.Title, err)
			}
		}
	}
}
