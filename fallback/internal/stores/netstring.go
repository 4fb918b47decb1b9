package stores

import (
	"strconv"
	"strings"
)

// Join writes a list as netstrings: "abc" and "" are "3:abc,0:,".
func Join(list ...string) string {
	var b strings.Builder
	for _, s := range list {
		b.WriteString(strconv.Itoa(len(s)))
		b.WriteByte(':')
		b.WriteString(s)
		b.WriteByte(',')
	}
	return b.String()
}

// Split takes netstrings apart, and reports whether s is a list of them.
func Split(s string) (list []string, ok bool) {
	for len(s) > 0 {
		length, rest, ok := strings.Cut(s, ":")
		n, err := strconv.Atoi(length)
		if !ok || err != nil || n < 0 || n >= len(rest) || rest[n] != ',' {
			return nil, false
		}
		list = append(list, rest[:n])
		s = rest[n+1:]
	}
	return list, true
}
