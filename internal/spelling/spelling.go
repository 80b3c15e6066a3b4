// Package spelling guesses what a misspelt name was meant to be.
package spelling

import "strings"

// Nearest returns the candidate, in lower case, that word was probably meant to
// be, or "" if it is far from all of them.
func Nearest(word string, candidates []string) string {
	word = strings.ToLower(word)
	best, bound := "", max(1, len(word)/3)+1
	for _, c := range candidates {
		if d := distance(word, c); d < bound {
			best, bound = c, d
		}
	}
	return best
}

// distance is the number of characters to insert, delete, replace, or swap with
// their neighbour to get from a to b (optimal string alignment). Long words are
// far from everything.
func distance(a, b string) int {
	if len(a) > 64 || len(b) > 64 {
		return len(a) + len(b)
	}
	rows := make([][]int, len(a)+1)
	for i := range rows {
		rows[i] = make([]int, len(b)+1)
		rows[i][0] = i
	}
	for j := range rows[0] {
		rows[0][j] = j
	}
	for i := 1; i <= len(a); i++ {
		for j := 1; j <= len(b); j++ {
			replace := rows[i-1][j-1]
			if a[i-1] != b[j-1] {
				replace++
			}
			rows[i][j] = min(rows[i-1][j]+1, rows[i][j-1]+1, replace)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				rows[i][j] = min(rows[i][j], rows[i-2][j-2]+1)
			}
		}
	}
	return rows[len(a)][len(b)]
}
