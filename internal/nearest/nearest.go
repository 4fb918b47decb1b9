// Package nearest finds the known name that is most like a misspelled one.
package nearest

import "slices"

// Name returns the one of names with the least edit distance to s, the first of
// several. There must be one.
func Name(s string, names []string) string {
	return slices.MinFunc(names, func(a, b string) int { return distance(s, a) - distance(s, b) })
}

// distance counts the characters to insert, remove or replace (Levenshtein).
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			replaced := diagonal
			if a[i] != b[j] {
				replaced++
			}
			diagonal = row[j+1]
			row[j+1] = min(row[j]+1, diagonal+1, replaced)
		}
	}
	return row[len(b)]
}
