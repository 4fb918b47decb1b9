package worker

import (
	"encoding/binary"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/keyway-go/keyway/gateway/internal/fields"
	"github.com/keyway-go/keyway/gateway/worker/internal/answers"
	"github.com/keyway-go/keyway/gateway/worker/internal/keyed"
	"github.com/keyway-go/keyway/internal/keytable"
	"github.com/keyway-go/keyway/internal/policy"
	"github.com/keyway-go/keyway/internal/wire/grammar"
)

// Requests of routes that share are collapsed (RFC 9111, section 4): among equal requests that wait
// for a key, the first that gets it runs, and the others get its answer without running. All wait
// in the key's queue, each in its place and within all bounds, and run if the answer is not suited
// for all. An answer goes only to requests that
//
//   - had come before its execution began, so it is not older than they are; and
//   - have no request of another kind before them, so they overtake no write.

// collapsible is a request that may get the answer to an equal one.
type collapsible struct {
	worker *Worker
	wait   keytable.Item   // what it waits with
	form   string          // what equal requests have in common besides the key
	came   uint64          // when it came, among all that may share, and when those of the worker began
	began  uint64          // likewise when it began, if it leads
	answer *answers.Shared // the answer to an equal one, once wait has been taken along
}

// collapsible returns what a request without a body waits with that may get the answer
// to an equal one; nil for any other.
func (w *Worker) collapsible(how *keyed.Asking, method, host, target string, header http.Header) *collapsible {
	if !shares(how) || method != http.MethodGet && method != http.MethodHead || header["Upgrade"] != nil {
		return nil
	}
	c := &collapsible{worker: w, form: formOf(method, host, target, header), came: w.collapses.Add(1)}
	c.wait.Value = c
	how.Alike, how.Item = true, &c.wait
	return c
}

func shares(how *keyed.Asking) bool { return how.Policy != nil && how.Policy.Mode == policy.Share }

// formOf returns what is equal in equal requests: the method, where it goes, and all
// fields but ownFields, each value with its length.
func formOf(method, host, target string, header http.Header) string {
	var b []byte
	add := func(s string) { b = append(binary.AppendUvarint(b, uint64(len(s))), s...) }
	add(method)
	add(host)
	add(target)
	for _, name := range slices.Sorted(maps.Keys(header)) {
		values := header[name]
		switch {
		case name == "Forwarded":
			values = unsigned(values)
		case slices.Contains(answers.OwnFields, name), fields.IsKeyway(name):
			continue
		}
		add(name)
		b = binary.AppendUvarint(b, uint64(len(values)))
		for _, v := range values {
			add(v)
		}
	}
	return string(b)
}

// unsigned returns the parts of Forwarded fields that do not name the sender.
func unsigned(values []string) (list []string) {
	for item := range grammar.Items(values) {
		for part := range strings.SplitSeq(item, ";") {
			if name, _, _ := strings.Cut(strings.ToLower(strings.TrimSpace(part)), "="); name != "for" && name != "by" {
				list = append(list, part)
			}
		}
	}
	return list
}

// leads reports whether others wait for the answer to the request, which x has been
// admitted for. c may be nil.
func (c *collapsible) leads(x keyed.Execution) (leads bool) {
	if c == nil || x.Nested() {
		return false
	}
	c.began = c.worker.collapses.Add(1)
	c.takeWaiting(x, func(*collapsible) (take, more bool) {
		leads = true
		return false, false
	})
	return leads
}

// takeWaiting offers accept the requests that wait for the answer to c, see [keytable.Table.Take].
func (c *collapsible) takeWaiting(x keyed.Execution, accept func(*collapsible) (take, more bool)) {
	x.Take(func(i *keytable.Item) (take, more bool) {
		other, ok := i.Value.(*collapsible)
		switch {
		case !ok:
			return false, false
		case other.form != c.form, other.came > c.began:
			return false, true
		}
		return accept(other)
	})
}

// give gives the answer to c to all that wait for it.
func (c *collapsible) give(x keyed.Execution, answer *answers.Recorder) {
	var taken []*collapsible
	answer.End()
	c.takeWaiting(x, func(other *collapsible) (take, more bool) {
		other.answer = answer.Share()
		taken = append(taken, other)
		return true, true
	})
	for _, other := range taken {
		other.wait.Finish()
	}
}

// leaveAnswer ends the use of what c has been given, if it leaves with another answer. c may
// be nil.
func (c *collapsible) leaveAnswer() {
	if c != nil && c.wait.Taken() {
		c.answer.Close()
	}
}
