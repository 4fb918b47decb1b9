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

// statusError is an answer with another status than 200.
type statusError struct {
	status int // 0: the stream was reset, or its head is not understood
	detail string
}

func (e *statusError) Error() string {
	if e.detail == "" {
		return fmt.Sprintf("status %d", e.status)
	}
	return fmt.Sprintf("status %d: %s", e.status, e.detail)
}

// detail is the beginning of the body of an answer other than 200, or what became of its
// stream.
type detail []byte

// maxDetail bounds a detail, in bytes.
const maxDetail = 200

func (d *detail) add(body []byte) { *d = append(*d, body[:min(len(body), maxDetail-len(*d))]...) }

// take returns the first line, and makes d ready for another answer.
func (d *detail) take() string {
	line, _, _ := strings.Cut(string(*d), "\n")
	*d = nil
	return strings.TrimSpace(line)
}
