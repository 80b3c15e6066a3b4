package fakedynamo

import "strings"

// token is a piece of an expression.
type token struct {
	text string
	kind tokenKind
	at   int
}

type tokenKind byte

const (
	tokenEnd tokenKind = iota
	tokenWord
	tokenName  // #name
	tokenValue // :value
	tokenIndex // digits
	tokenMark
)

// is reports whether the token is this keyword; keywords know no case.
func (t token) is(keyword string) bool {
	return t.kind == tokenWord && strings.EqualFold(t.text, keyword)
}

func (t token) mark(text string) bool { return t.kind == tokenMark && t.text == text }

func letter(c byte) bool { return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' }
func digit(c byte) bool  { return c >= '0' && c <= '9' }
func inWord(c byte) bool { return letter(c) || digit(c) || c == '_' }

// lex splits an expression; the last token is tokenEnd.
func lex(text string) ([]token, *syntaxError) {
	var tokens []token
	for at := 0; at < len(text); {
		c := text[at]
		end := at + 1
		t := token{at: at}
		switch {
		case c == ' ' || c == '\t' || c == '\n' || c == '\r':
			at++
			continue
		case letter(c):
			t.kind = tokenWord
			for end < len(text) && inWord(text[end]) {
				end++
			}
		case digit(c):
			t.kind = tokenIndex
			for end < len(text) && digit(text[end]) {
				end++
			}
		case c == '#' || c == ':':
			t.kind = tokenName
			if c == ':' {
				t.kind = tokenValue
			}
			for end < len(text) && inWord(text[end]) {
				end++
			}
			if end == at+1 {
				return nil, syntaxAt(text, token{text: string(c), at: at})
			}
		case strings.IndexByte("(),.[]=+-<>", c) >= 0:
			t.kind = tokenMark
			if end < len(text) && (c == '<' && (text[end] == '=' || text[end] == '>') || c == '>' && text[end] == '=') {
				end++
			}
		default:
			return nil, syntaxAt(text, token{text: string(c), at: at})
		}
		t.text = text[at:end]
		tokens = append(tokens, t)
		at = end
	}
	return append(tokens, token{text: "<EOF>", at: len(text)}), nil
}

// syntaxError is a fault of an expression, without the expression's role.
type syntaxError struct{ message string }

func syntaxAt(text string, t token) *syntaxError {
	from, to := max(0, t.at-10), min(len(text), t.at+len(t.text)+10)
	return &syntaxError{`Syntax error; token: "` + t.text + `", near: "` + text[from:to] + `"`}
}
