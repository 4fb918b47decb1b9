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

// alike returns what a request without a body waits with that may get the answer
// to an equal one; nil for any other.
func (w *Worker) alike(how *keyed.Asking, method, host, target string, header http.Header) *alike {
	if !shares(how) || method != http.MethodGet && method != http.MethodHead || header["Upgrade"] != nil {
		return nil
	}
	a := newAlike(formOf(method, host, target, header))
	a.came = w.collapses.Add(1)
	how.Alike, how.Item = true, &a.wait
	return a
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

// leads reports whether others wait for the answer to the request a, which x has been
// admitted for. a may be nil.
func (w *Worker) leads(a *alike, x keyed.Execution) (leads bool) {
	if a == nil || x.Nested() {
		return false
	}
	a.began = w.collapses.Add(1)
	a.takeWaiting(x, func(*alike) (take, more bool) {
		leads = true
		return false, false
	})
	return leads
}

// answer returns the answer to an equal request, once a request has been taken along.
func (a *alike) answer() *answers.Shared { return a.result.(*answers.Shared) }

// leaveAnswer ends the use of what a has been given, if it leaves with another answer. a may be nil.
func (a *alike) leaveAnswer() {
	if a != nil && a.wait.Taken() {
		a.answer().Close()
	}
}
