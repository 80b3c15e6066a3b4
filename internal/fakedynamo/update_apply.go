package fakedynamo

import (
	"cmp"
	"slices"
)

// apply makes the item that the update leaves. Every value is computed from the
// item as it was; the old item stays as it is.
func (u *update) apply(e *env, old item) (item, error) {
	out := old.clone()
	for _, a := range u.set {
		v, err := a.term.eval(e, old)
		if err != nil {
			return nil, err
		}
		if err := e.write(out, a.target, v); err != nil {
			return nil, err
		}
	}
	for _, c := range u.add {
		v, err := added(e.resolve(old, c.target), e.values[c.value])
		if err != nil {
			return nil, err
		}
		if err := e.write(out, c.target, v); err != nil {
			return nil, err
		}
	}
	for _, c := range u.remover {
		v, err := withoutMembers(e.resolve(old, c.target), e.values[c.value])
		if err != nil {
			return nil, err
		}
		if err := e.write(out, c.target, v); err != nil {
			return nil, err
		}
	}
	// The elements of a list go from its end, so that indexes mean the old list's.
	removals := slices.Clone(u.remove)
	slices.SortStableFunc(removals, func(a, b path) int {
		return cmp.Compare(b[len(b)-1].index, a[len(a)-1].index)
	})
	for _, target := range removals {
		if err := e.write(out, target, nil); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// write puts v at the path, or removes what is there if v is nil.
func (e *env) write(it item, p path, v *value) error {
	name := e.name(p[0])
	if len(p) > 1 {
		if it[name] == nil {
			return validation("%s", errBadPath)
		}
		inner, err := e.writeInto(it[name], p[1:], v)
		if err != nil {
			return err
		}
		v = inner
	}
	if v == nil {
		delete(it, name)
		return nil
	}
	it[name] = v
	return nil
}

// writeInto returns a copy of the container with v at the path.
func (e *env) writeInto(container *value, p path, v *value) (*value, error) {
	s, last := p[0], len(p) == 1
	if s.name != "" {
		if container.kind != kindMap {
			return nil, validation("%s", errBadPath)
		}
		fields := container.fields.clone()
		if err := e.write(fields, p, v); err != nil {
			return nil, err
		}
		return &value{kind: kindMap, fields: fields}, nil
	}
	if container.kind != kindList || !last && s.index >= len(container.list) {
		return nil, validation("%s", errBadPath)
	}
	list := slices.Clone(container.list)
	switch {
	case !last:
		inner, err := e.writeInto(list[s.index], p[1:], v)
		if err != nil {
			return nil, err
		}
		list[s.index] = inner
	case v == nil && s.index < len(list):
		list = slices.Delete(list, s.index, s.index+1)
	case v == nil:
	case s.index < len(list):
		list[s.index] = v
	default:
		list = append(list, v)
	}
	return &value{kind: kindList, list: list}, nil
}

// added is the result of ADD: a sum, or a union of sets.
func added(old, operand *value) (*value, error) {
	switch {
	case old == nil:
		return operand, nil
	case old.kind != operand.kind:
		return nil, validation("%s", errOperandType)
	case old.kind == kindNumber:
		text, err := addNumbers(old.text, operand.text, false)
		return numberValue(text), err
	}
	members := slices.Clone(old.set)
	for _, member := range operand.set {
		if !slices.Contains(members, member) {
			members = append(members, member)
		}
	}
	return newSet(old.kind, members)
}

// withoutMembers is the result of DELETE; a set without members goes.
func withoutMembers(old, operand *value) (*value, error) {
	if old == nil {
		return nil, nil
	}
	if old.kind != operand.kind {
		return nil, validation("%s", errOperandType)
	}
	var members []string
	for _, member := range old.set {
		if !slices.Contains(operand.set, member) {
			members = append(members, member)
		}
	}
	if members == nil {
		return nil, nil
	}
	return newSet(old.kind, members)
}

// touched is what UPDATED_OLD and UPDATED_NEW return of the item.
func (u *update) touched(e *env, it item) (item, error) {
	out := item{}
	for _, p := range u.paths() {
		if len(p) > 1 {
			return nil, unsupported("ReturnValues UPDATED_OLD or UPDATED_NEW with nested paths")
		}
		if v := it[e.name(p[0])]; v != nil {
			out[e.name(p[0])] = v
		}
	}
	return out, nil
}
