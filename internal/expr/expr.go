// Package expr compiles the expressions of a route: the ordering key and the
// filters, in CEL (the Common Expression Language).
//
// An expression sees one message through the variables of [Variables]. It is
// parsed and type-checked once, when the configuration is read, and bounded in
// what it may cost when it runs. It fails on a message that lacks what it asks
// for; whoever calls it rejects that message.
package expr

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/ext"
	"cel.dev/cel-go/interpreter"

	"gobridge/messaging"
)

const (
	// maxSource bounds an expression, in characters.
	maxSource = 4096
	// maxCost bounds one evaluation, in CEL's units of cost: about one per step
	// and one per ten characters that a string function reads.
	maxCost = 1_000_000
	// maxPayload bounds what is parsed for the variable payload, in bytes.
	maxPayload = 4 << 20
	// maxString bounds what replace and join make, in bytes.
	maxString = 4 << 20
	// maxRegex bounds the compiled size of a regular expression.
	maxRegex = 1000
)

// Variable is what an expression can ask about a message.
type Variable struct {
	Name string
	Type string
	Doc  string
	typ  *cel.Type
}

// Variables returns the variables of an expression.
func Variables() []Variable {
	return []Variable{
		{"id", "string", "the message ID", cel.StringType},
		{"subject", "string", "what the message is about: the source says what that is", cel.StringType},
		{"key", "string", "the ordering key that the source gave, empty if none", cel.StringType},
		{"content_type", "string", "the media type of the payload, empty if unknown", cel.StringType},
		{"headers", "map(string, string)", "the headers, by lower-case name", cel.MapType(cel.StringType, cel.StringType)},
		{"payload", "dyn", "the payload, parsed as JSON; an expression that uses it fails on any other payload", cel.DynType},
		{"payload_size", "int", "the payload's size in bytes", cel.IntType},
		{"created_at", "timestamp", "when the message says it was made", cel.TimestampType},
	}
}

// Error is what is wrong with an expression.
type Error struct {
	Problems []Problem
}

// Problem is one thing that is wrong. Line and Column are those in the
// expression, in characters, from 1.
type Problem struct {
	Line, Column int
	Message      string
}

func (e *Error) Error() string {
	parts := make([]string, len(e.Problems))
	for i, p := range e.Problems {
		parts[i] = fmt.Sprintf("%d:%d: %s", p.Line, p.Column, p.Message)
	}
	return strings.Join(parts, "; ")
}

// Key compiles the expression of an ordering key. It is a string, or something
// in the payload that is a string or an integer in each message; the empty
// string means no key. The function is safe for concurrent use. An expression
// that does not compile is an [*Error].
func Key(source string) (func(*messaging.Envelope) (string, error), error) {
	return text(source, "an ordering key")
}

// Text compiles an expression that gives a text, like a topic or the value of a
// header, as [Key] does.
func Text(source string) (func(*messaging.Envelope) (string, error), error) {
	return text(source, "this value")
}

// text compiles an expression that gives a string; what names it in errors.
func text(source, what string) (func(*messaging.Envelope) (string, error), error) {
	program, err := compile(source, cel.StringType,
		what+` is a string; write string(...) around the expression to make it one`)
	if err != nil {
		return nil, err
	}
	return func(e *messaging.Envelope) (string, error) {
		value, err := run(program, source, e)
		if err != nil {
			return "", err
		}
		switch v := value.(type) {
		case types.String:
			return string(v), nil
		case types.Int:
			return strconv.FormatInt(int64(v), 10), nil
		case types.Uint:
			return strconv.FormatUint(uint64(v), 10), nil
		}
		return "", fail(source, "gives %s; %s is a string or an integer", typeName(value), what)
	}, nil
}

// Filter compiles the expression of a filter. It is a bool, or something in
// the payload that is one in each message. The function is safe for concurrent
// use. An expression that does not compile is an [*Error].
func Filter(source string) (func(*messaging.Envelope) (bool, error), error) {
	program, err := compile(source, cel.BoolType, `a filter is true or false; compare the value with something`)
	if err != nil {
		return nil, err
	}
	return func(e *messaging.Envelope) (bool, error) {
		value, err := run(program, source, e)
		if err != nil {
			return false, err
		}
		if v, ok := value.(types.Bool); ok {
			return bool(v), nil
		}
		return false, fail(source, "gives %s; a filter is true or false", typeName(value))
	}, nil
}

// compile checks that the expression is of the type wanted, as far as that can
// be known without a message.
func compile(source string, want *cel.Type, hint string) (cel.Program, error) {
	if strings.TrimSpace(source) == "" {
		return nil, problem("the expression is empty")
	}
	if !utf8.ValidString(source) {
		return nil, problem("the expression is not valid UTF-8")
	}
	if n := utf8.RuneCountInString(source); n > maxSource {
		return nil, problem(fmt.Sprintf("the expression has %d characters; the limit is %d", n, maxSource))
	}
	env, err := environment()
	if err != nil {
		return nil, fmt.Errorf("prepare expressions: %w", err)
	}
	ast, issues := env.Compile(source)
	if issues.Err() != nil {
		return nil, fromIssues(issues)
	}
	if out := ast.OutputType(); !out.IsExactType(want) && !out.IsExactType(cel.DynType) {
		return nil, problem(fmt.Sprintf("the expression gives %s; %s", cel.FormatCELType(out), hint))
	}
	program, err := env.Program(ast, cel.CostLimit(maxCost), cel.CostTracking(formatCost{}), cel.EvalOptions(cel.OptOptimize))
	if err != nil {
		// What can be computed without a message is, and may fail: 1/0, a bad regular expression.
		return nil, problem(tidy(err.Error()))
	}
	return program, nil
}

// environment returns what every expression is compiled in. It never changes and
// is safe for concurrent use, so there is one: with one of its own, an expression
// took fifty times the memory.
var environment = sync.OnceValues(newEnvironment)

func newEnvironment() (*cel.Env, error) {
	options := []cel.EnvOption{
		ext.Strings(ext.StringsVersion(5)),
		ext.Math(),
		ext.Encoders(),
		cel.CrossTypeNumericComparisons(true),
		cel.DefaultUTCTimeZone(true),
		cel.ParserExpressionSizeLimit(maxSource),
		cel.ParserRecursionLimit(100),
		cel.ExpressionNodeLimit(5000),
		cel.RegexProgramSizeLimit(maxRegex),
	}
	options = append(options, bounded()...)
	for _, v := range Variables() {
		options = append(options, cel.Variable(v.Name, v.typ))
	}
	return cel.NewEnv(options...)
}

func run(program cel.Program, source string, e *messaging.Envelope) (ref.Val, error) {
	value, _, err := program.Eval(&message{envelope: e})
	if err == nil {
		return value, nil
	}
	var cancelled interpreter.EvalCancelledError
	if errors.As(err, &cancelled) && cancelled.Cause == interpreter.CostLimitExceeded {
		return nil, fail(source, "takes too much work on this message")
	}
	return nil, fail(source, "%s", tidy(err.Error()))
}

// fail describes a failure on one message.
func fail(source, format string, args ...any) error {
	source = strings.Join(strings.Fields(source), " ")
	if r := []rune(source); len(r) > 80 {
		source = string(r[:77]) + "..."
	}
	return fmt.Errorf("expression `%s`: %s", source, fmt.Sprintf(format, args...))
}

func problem(message string) *Error {
	return &Error{Problems: []Problem{{Line: 1, Column: 1, Message: message}}}
}

func fromIssues(issues *cel.Issues) *Error {
	out := &Error{}
	for _, e := range issues.Errors() {
		p := Problem{Line: max(e.Location.Line(), 1), Column: max(e.Location.Column()+1, 1), Message: tidy(e.Message)}
		out.Problems = append(out.Problems, p)
	}
	return out
}

// tidy takes the library's own words out of a message.
func tidy(message string) string {
	message = strings.ReplaceAll(message, " (in container '')", "")
	message = strings.TrimPrefix(message, "Syntax error: ")
	return strings.Join(strings.Fields(message), " ")
}

func typeName(v ref.Val) string {
	switch v.(type) {
	case types.Null:
		return "null"
	case types.Double:
		return "a number with a fraction or exponent, or too large for an integer"
	}
	return "a " + v.Type().TypeName()
}
