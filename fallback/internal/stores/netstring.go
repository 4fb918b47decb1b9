package stores

import (
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/keyway-go/keyway/internal/records"
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

// ErrFields means that a text is no list of netstrings, or not the one that was expected.
var ErrFields = errors.New("store: a list of netstrings cannot be decoded")

// Fields takes a list of netstrings apart, and keeps the first error.
type Fields struct {
	list []string
	Err  error // wraps ErrFields
}

// Read returns the fields of a text.
func Read(text string) *Fields {
	list, ok := Split(text)
	f := &Fields{list: list}
	if !ok {
		f.Err = ErrFields
	}
	return f
}

// Text returns the next field.
func (f *Fields) Text() string {
	if len(f.list) == 0 {
		f.Err = ErrFields
		return ""
	}
	text := f.list[0]
	f.list = f.list[1:]
	return text
}

// Number returns the next field, a decimal number.
func (f *Fields) Number() int64 {
	n, err := strconv.ParseInt(f.Text(), 10, 64)
	if err != nil {
		f.Err = ErrFields
	}
	return n
}

// More reports whether fields follow. After an error none do.
func (f *Fields) More() bool { return f.Err == nil && len(f.list) > 0 }

// ReadSession returns the session of an incarnation from the details that a store keeps of it.
func ReadSession(incarnation, details string) (records.SessionState, error) {
	f := Read(details)
	s := records.SessionState{Session: records.Session{Incarnation: incarnation, Name: f.Text(), Addr: f.Text(), Gossip: f.Text()}}
	s.Joins = time.Duration(f.Number()) * time.Millisecond
	return s, f.Err
}
