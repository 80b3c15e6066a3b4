package expr

import (
	"fmt"
	"math"
	"strings"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"
)

// bounded returns replace and join with a bound on the string they make. Both
// can make far more of a message than there is in it, in one call, and the cost
// of a call is counted only once it has returned: by then the memory is gone.
// They take the place of the library's, whose signatures they have.
func bounded() []cel.EnvOption {
	str, list := cel.StringType, cel.ListType(cel.StringType)
	return []cel.EnvOption{
		cel.Function("replace",
			cel.MemberOverload("string_replace_string_string", []*cel.Type{str, str, str}, str,
				cel.FunctionBinding(func(args ...ref.Val) ref.Val { return replace(args, -1) })),
			cel.MemberOverload("string_replace_string_string_int", []*cel.Type{str, str, str, cel.IntType}, str,
				cel.FunctionBinding(func(args ...ref.Val) ref.Val {
					n, ok := args[3].(types.Int)
					if !ok {
						return types.MaybeNoSuchOverloadErr(args[3])
					}
					return replace(args[:3], int64(n))
				}))),
		cel.Function("join",
			cel.MemberOverload("list_join", []*cel.Type{list}, str,
				cel.UnaryBinding(func(l ref.Val) ref.Val { return join(l, types.String("")) })),
			cel.MemberOverload("list_join_string", []*cel.Type{list, str}, str,
				cel.BinaryBinding(join))),
	}
}

// replace replaces the first n occurrences, or all if n is negative.
func replace(args []ref.Val, n int64) ref.Val {
	text, ok1 := args[0].(types.String)
	old, ok2 := args[1].(types.String)
	with, ok3 := args[2].(types.String)
	if !ok1 || !ok2 || !ok3 {
		return types.NewErr("replace takes strings")
	}
	times := int64(strings.Count(string(text), string(old)))
	if n >= 0 {
		times = min(times, n)
	}
	if size := int64(len(text)) + times*int64(len(with)-len(old)); size > maxString {
		return tooLong("replace", size)
	}
	return types.String(strings.Replace(string(text), string(old), string(with), int(max(min(n, math.MaxInt32), -1))))
}

// join joins the strings of a list.
func join(list, separator ref.Val) ref.Val {
	lister, ok1 := list.(traits.Lister)
	between, ok2 := separator.(types.String)
	if !ok1 || !ok2 {
		return types.NewErr("join takes a list of strings and a string")
	}
	length, ok := lister.Size().(types.Int)
	if !ok {
		return types.NewErr("join takes a list of strings and a string")
	}
	var b strings.Builder
	for i := range length {
		if i > 0 {
			b.WriteString(string(between))
		}
		element, ok := lister.Get(i).(types.String)
		if !ok {
			return types.NewErr("join takes a list of strings; element %d is none", int64(i))
		}
		b.WriteString(string(element))
		if b.Len() > maxString {
			return tooLong("join", int64(b.Len()))
		}
	}
	return types.String(b.String())
}

func tooLong(function string, size int64) ref.Val {
	return types.NewErr("%s", fmt.Sprintf("%s makes a string of %d bytes or more; the limit is %d", function, size, maxString))
}

// formatCost counts what format makes, which the library does not.
type formatCost struct{}

// CallCost is nil for functions whose cost the library counts.
func (formatCost) CallCost(_, overload string, _ []ref.Val, result ref.Val) *uint64 {
	text, ok := result.(types.String)
	if overload != "string_format" || !ok {
		return nil
	}
	cost := 1 + uint64(len(text))/10
	return &cost
}
