//go:build linux

package load

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"
)

// Failure is requests that failed in the same way.
type Failure struct {
	What        string // the status and the first line of the answer's body, or what broke the connection
	Count       int64
	First, Last time.Duration // since the load began
}

func (f Failure) String() string {
	return fmt.Sprintf("%d × %s (%v to %v)", f.Count, f.What, f.First.Round(time.Millisecond), f.Last.Round(time.Millisecond))
}

// Failures are at most maxKinds.
type Failures []Failure

func (f Failures) String() string {
	kinds := make([]string, len(f))
	for i := range f {
		kinds[i] = f[i].String()
	}
	return strings.Join(kinds, "; ")
}

// maxKinds bounds the kinds of failures that are told from each other; the last one
// stands for all others.
const maxKinds = 16

// with counts another failure.
func (f Failures) with(add Failure) Failures {
	i := slices.IndexFunc(f, func(have Failure) bool { return have.What == add.What })
	switch {
	case i < 0 && len(f) == maxKinds:
		i = maxKinds - 1
		f[i].What = "others"
	case i < 0:
		return append(f, add)
	}
	f[i].Count += add.Count
	f[i].First, f[i].Last = min(f[i].First, add.First), max(f[i].Last, add.Last)
	return f
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
