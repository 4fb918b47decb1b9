package stores

import (
	"cmp"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/keyway-go/keyway/internal/records"
	"github.com/keyway-go/keyway/ring"
)

// Join writes a list as netstrings: "abc" and "" are "3:abc,0:,".
func Join(list ...string) string {
	var b strings.Builder
	for _, s := range list {
		fmt.Fprintf(&b, "%d:%s,", len(s), s)
	}
	return b.String()
}

// ErrFields means that what a store has or replies is not what was expected.
var ErrFields = errors.New("store: a text or a reply of the store cannot be decoded")

// Fields takes a list apart, and keeps the first error. The fields are texts, numbers and lists.
type Fields struct {
	list []any
	Err  error // wraps ErrFields
}

// Values returns the values of a reply as fields.
func Values(list []any) *Fields { return &Fields{list: list} }

// Read returns the fields of a list of netstrings.
func Read(text string) *Fields {
	f := &Fields{list: make([]any, 0, 4)}
	for len(text) > 0 {
		length, rest, ok := strings.Cut(text, ":")
		n, err := strconv.Atoi(length)
		if !ok || err != nil || n < 0 || n >= len(rest) || rest[n] != ',' {
			return &Fields{Err: ErrFields}
		}
		f.list = append(f.list, rest[:n])
		text = rest[n+1:]
	}
	return f
}

func (f *Fields) fail() { f.Err = cmp.Or(f.Err, ErrFields) }

// next returns the next field, nil if there is none.
func (f *Fields) next() (field any) {
	if len(f.list) > 0 {
		field, f.list = f.list[0], f.list[1:]
	}
	return field
}

// Text returns the next field, a text.
func (f *Fields) Text() string {
	text, ok := f.next().(string)
	if !ok {
		f.fail()
	}
	return text
}

// Number returns the next field, a number or a text that is one.
func (f *Fields) Number() int64 {
	field := f.next()
	if n, ok := field.(int64); ok {
		return n
	}
	text, _ := field.(string)
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		f.fail()
	}
	return n
}

// ID returns the next field, the identity of a store.
func (f *Fields) ID() ring.StoreID {
	id, err := ring.ParseStoreID(f.Text())
	if err != nil {
		f.fail()
	}
	return id
}

// Each takes the next field, a list, apart: read takes an item off it.
func (f *Fields) Each(read func(list *Fields)) {
	values, ok := f.next().([]any)
	if !ok {
		f.fail()
	}
	list := Values(values)
	for list.More() {
		read(list)
	}
	f.Err = cmp.Or(f.Err, list.Err)
}

// More reports whether fields follow. After an error none do.
func (f *Fields) More() bool { return f.Err == nil && len(f.list) > 0 }

// End returns the first error. A field that is left over is one.
func (f *Fields) End() error {
	if len(f.list) > 0 {
		f.fail()
	}
	return f.Err
}

// ReadSession returns the session of an incarnation from the details that a store keeps of it.
func ReadSession(incarnation, details string) (records.SessionState, error) {
	f := Read(details)
	s := records.SessionState{Session: records.Session{Incarnation: incarnation, Name: f.Text(), Addr: f.Text(), Gossip: f.Text()}}
	s.Joins = time.Duration(f.Number()) * time.Millisecond
	return s, f.Err
}
