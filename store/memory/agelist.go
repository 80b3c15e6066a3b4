package memory

import "slices"

// ageList holds records of one key in ascending age. Adding the youngest and
// removing the oldest, which is nearly all that happens, cost O(1).
type ageList struct{ records []*record }

// place returns where r is or belongs.
func (l *ageList) place(r *record) int {
	if n := len(l.records); n == 0 || l.records[n-1].age().before(r.age()) {
		return n
	}
	i, _ := slices.BinarySearchFunc(l.records, r.age(), func(s *record, a age) int {
		switch b := s.age(); {
		case b.before(a):
			return -1
		case a.before(b):
			return 1
		default:
			return 0
		}
	})
	return i
}

func (l *ageList) add(r *record) { l.records = slices.Insert(l.records, l.place(r), r) }

// remove takes r out, which is in the list.
func (l *ageList) remove(r *record) {
	i := l.place(r)
	if i == 0 {
		l.records[0] = nil // not to be kept by the array behind
		l.records = l.records[1:]
		return
	}
	l.records = slices.Delete(l.records, i, i+1)
}

// head returns the oldest, nil if there is none.
func (l *ageList) head() *record {
	if len(l.records) == 0 {
		return nil
	}
	return l.records[0]
}

// after returns the next younger one than r, nil if there is none.
func (l *ageList) after(r *record) *record {
	if i := l.place(r) + 1; i < len(l.records) {
		return l.records[i]
	}
	return nil
}

// younger counts those younger than r, which is not in the list.
func (l *ageList) younger(r *record) int { return len(l.records) - l.place(r) }
