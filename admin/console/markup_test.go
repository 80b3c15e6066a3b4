package console

import (
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"golang.org/x/net/html"
)

// textOf is what a page says, with single spaces.
func textOf(body string) string {
	var out strings.Builder
	for n := range document(nil, body).Descendants() {
		if n.Type == html.TextNode {
			out.WriteString(n.Data)
		}
		out.WriteByte(' ')
	}
	text := strings.Join(strings.Fields(out.String()), " ")
	for _, mark := range []string{".", ",", ":", ")"} {
		text = strings.ReplaceAll(text, " "+mark, mark)
	}
	return text
}

func document(t testing.TB, body string) *html.Node {
	n, err := html.Parse(strings.NewReader(body))
	if err != nil && t != nil {
		t.Fatal(err)
	}
	return n
}

func attribute(n *html.Node, name string) (string, bool) {
	for _, a := range n.Attr {
		if a.Key == name {
			return a.Val, true
		}
	}
	return "", false
}

// sound checks what holds for every page: that it keeps the content security
// policy, has its landmarks, that fields have labels, that identities are unique,
// and that nothing in it is invisible.
func sound(t testing.TB, name, body string) {
	t.Helper()
	if !utf8.ValidString(body) {
		t.Errorf("%s is no UTF-8", name)
	}
	for _, r := range body {
		if r != ' ' && !unicode.IsPrint(r) && r != '\n' && r != '\t' {
			t.Errorf("%s has %U", name, r)
			break
		}
	}
	seen := map[string]bool{}
	labels := map[string]bool{}
	landmarks := map[string]int{}
	var fields []*html.Node
	for n := range document(t, body).Descendants() {
		if n.Type != html.ElementNode {
			continue
		}
		landmarks[n.Data]++
		if id, ok := attribute(n, "id"); ok {
			if seen[id] {
				t.Errorf("%s has two #%s", name, id)
			}
			seen[id] = true
		}
		for _, a := range n.Attr {
			address := a.Key == "href" || a.Key == "src" || a.Key == "action"
			if strings.HasPrefix(a.Key, "on") || a.Key == "style" || address && !strings.HasPrefix(a.Val, "/") && !strings.HasPrefix(a.Val, "#") {
				t.Errorf("%s has <%s %s=%q>", name, n.Data, a.Key, a.Val)
			}
		}
		source, _ := attribute(n, "src")
		switch kind, _ := attribute(n, "type"); n.Data {
		case "script":
			if !strings.HasPrefix(source, "/static/") || n.FirstChild != nil {
				t.Errorf("%s has a script in itself, or from %q", name, source)
			}
		case "style", "img", "iframe", "object", "embed":
			t.Errorf("%s has <%s>", name, n.Data)
		case "label":
			of, _ := attribute(n, "for")
			labels[of] = true
		case "input", "select", "textarea":
			if kind != "hidden" {
				fields = append(fields, n)
			}
		}
	}
	for _, n := range fields {
		if id, _ := attribute(n, "id"); !labels[id] {
			t.Errorf("%s: no label for <%s id=%q>", name, n.Data, id)
		}
	}
	for _, one := range []string{"main", "h1", "header", "footer", "title"} {
		if landmarks[one] != 1 {
			t.Errorf("%s has %d <%s>, want 1", name, landmarks[one], one)
		}
	}
}
