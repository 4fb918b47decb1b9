//go:build linux

package load

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
)

// Failures are numbers of requests that failed in the same way, by the status and the first line of the answer's body, or
// by what broke the connection.
type Failures map[string]int64

func (f Failures) String() string {
	var kinds []string
	for _, what := range slices.Sorted(maps.Keys(f)) {
		kinds = append(kinds, fmt.Sprintf("%d × %s", f[what], what))
	}
	return strings.Join(kinds, "; ")
}

// maxKinds bounds the kinds of failures that are told from each other.
const maxKinds = 16

// add counts a failure.
func (f Failures) add(what string) {
	if f[what] == 0 && len(f) >= maxKinds-1 {
		what = "others"
	}
	f[what]++
}

// kindOf returns what err says, without the addresses of the connection.
func kindOf(err error) string {
	if op, ok := errors.AsType[*net.OpError](err); ok {
		return op.Op + ": " + op.Err.Error()
	}
	return err.Error()
}

// statusOf says what an answer other than 200 was: its status, 0 if the stream was reset or its head is not understood, and
// the first line of its body, or what became of its stream.
func statusOf(status int, body []byte) string {
	line, _, _ := strings.Cut(string(body), "\n")
	if line = strings.TrimSpace(line); line == "" {
		return fmt.Sprintf("status %d", status)
	}
	return fmt.Sprintf("status %d: %s", status, line)
}

// keep appends to what is kept of a body: its beginning.
func keep(kept, body []byte) []byte { return append(kept, body[:min(len(body), maxBody-len(kept))]...) }

// maxBody bounds what is kept of an answer's body, in bytes.
const maxBody = 256
