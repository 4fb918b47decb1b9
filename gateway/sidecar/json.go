package sidecar

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/keyway-go/keyway/gateway/worker"
	"github.com/keyway-go/keyway/internal/wire/grammar"
)

// jsonRequest is a request as the app finds it in the array of its batch.
type jsonRequest struct {
	target string            // path and query
	header map[string]string // lower-case names; the values of one name joined
	body   []byte            // JSON
}

func newJSONRequest(r *http.Request, body []byte) jsonRequest {
	q := jsonRequest{target: r.URL.RequestURI(), header: make(map[string]string, len(r.Header)+1), body: body}
	for name, values := range r.Header {
		switch name {
		case "Content-Length", "Trailer", "Te", "Keyway-Key":
			continue
		case "Cookie":
			q.header["cookie"] = strings.Join(values, "; ")
		default:
			q.header[strings.ToLower(name)] = strings.Join(values, ", ")
		}
	}
	q.header["host"] = r.Host
	return q
}

// size is about what q takes in the array.
func (q jsonRequest) size() int {
	n := len(q.target) + len(q.body) + 40
	for name, value := range q.header {
		n += len(name) + len(value) + 6
	}
	return n
}

func appendBatch(b []byte, items []*worker.Item[jsonRequest, jsonAnswer]) []byte {
	for i, item := range items {
		separator := byte(',')
		if i == 0 {
			separator = '['
		}
		target, _ := json.Marshal(item.In.target) // strings, of which json makes valid text
		header, _ := json.Marshal(item.In.header)
		b = append(b, separator)
		b = append(append(b, `{"target":`...), target...)
		b = append(append(b, `,"header":`...), header...)
		b = append(append(b, `,"body":`...), item.In.body...)
		b = append(b, '}')
	}
	return append(b, ']')
}

// Bounds of the JSON of a request in a batch: beyond them parsers in some
// languages give up, which would fail the whole batch.
const (
	maxJSONDepth  = 64
	maxJSONNumber = 64 // bytes
)

// checkJSON returns an error unless every parser accepts body as an item of an array.
func checkJSON(body []byte) error {
	switch {
	case !utf8.Valid(body):
		return errors.New("worker: the body is not in UTF-8, which JSON must be")
	case !json.Valid(body):
		return errors.New("worker: the body is not valid JSON")
	}
	depth := 0
	for i := 0; i < len(body); i++ {
		switch c := body[i]; {
		case c == '"':
			end, ok := skipString(body, i+1)
			if !ok {
				return errors.New("worker: the body's JSON has half of a surrogate pair")
			}
			i = end
		case c == '{' || c == '[':
			if depth++; depth > maxJSONDepth {
				return fmt.Errorf("worker: the body's JSON is nested deeper than %d", maxJSONDepth)
			}
		case c == '}' || c == ']':
			depth--
		case c >= '0' && c <= '9' || c == '-':
			number := body[i:]
			if end := bytes.IndexFunc(number, func(c rune) bool { return !strings.ContainsRune("0123456789+-.eE", c) }); end >= 0 {
				number = number[:end]
			}
			if len(number) > maxJSONNumber {
				return fmt.Errorf("worker: the body's JSON has a number of more than %d bytes", maxJSONNumber)
			}
			if _, err := strconv.ParseFloat(string(number), 64); err != nil {
				return fmt.Errorf("worker: the body's JSON has the number %s, which does not fit a 64-bit float", number)
			}
			i += len(number) - 1
		}
	}
	return nil
}

// skipString returns where the string that begins at i, in valid JSON, ends. It
// reports false if the string has half of a surrogate pair.
func skipString(body []byte, i int) (end int, ok bool) {
	pending := false // the second half has to follow
	for ; body[i] != '"'; i++ {
		unit := uint64(0)
		if body[i] == '\\' {
			if i++; body[i] == 'u' {
				unit, _ = strconv.ParseUint(string(body[i+1:i+5]), 16, 16)
				i += 4
			}
		}
		if low := unit&0xfc00 == 0xdc00; low != pending {
			return 0, false
		}
		pending = unit&0xfc00 == 0xd800
	}
	return i, !pending
}

// jsonAnswer is what the app answers one request of a batch.
type jsonAnswer struct {
	status int
	header http.Header
	body   []byte // JSON; nil for none
}

// decodeAnswers takes the app's array apart. An error of its own is that the array is not one of
// that many answers. An element that is no answer yields an error in its place.
func decodeAnswers(data []byte, n int) (answers []jsonAnswer, errs []error, err error) {
	var elements []json.RawMessage
	if err := json.Unmarshal(data, &elements); err != nil {
		return nil, nil, fmt.Errorf("worker: the app's answer to a batch is not a JSON array: %w", err)
	}
	if len(elements) != n {
		return nil, nil, fmt.Errorf("worker: the app's answer to a batch of %d requests is an array of %d", n, len(elements))
	}
	answers, errs = make([]jsonAnswer, n), make([]error, n)
	for i, element := range elements {
		answers[i], errs[i] = decodeAnswer(element)
	}
	return answers, errs, nil
}

func decodeAnswer(element []byte) (answer jsonAnswer, err error) {
	var a struct {
		Status *int                       `json:"status"`
		Header map[string]json.RawMessage `json:"header"`
		Body   json.RawMessage            `json:"body"`
	}
	if !bytes.HasPrefix(element, []byte("{")) {
		return answer, errors.New("worker: the app's answer to a request of a batch is not a JSON object")
	}
	if err := json.Unmarshal(element, &a); err != nil {
		return answer, fmt.Errorf("worker: the app's answer to a request of a batch: %w", err)
	}
	answer = jsonAnswer{status: http.StatusOK, header: make(http.Header, len(a.Header)), body: a.Body}
	if a.Status != nil {
		answer.status = *a.Status
	}
	if answer.status < 200 || answer.status > 599 {
		return answer, fmt.Errorf("worker: the app's answer to a request of a batch has the status %d", answer.status)
	}
	for name, raw := range a.Header {
		var values []string
		var value string
		if json.Unmarshal(raw, &value) == nil {
			values = []string{value}
		} else if err := json.Unmarshal(raw, &values); err != nil {
			return answer, fmt.Errorf("worker: the app's answer to a request of a batch has a header %.64q that is neither a string nor an array of strings", name)
		}
		if !grammar.IsToken(name) || slices.ContainsFunc(values, func(v string) bool { return !grammar.IsValue(v) }) {
			return answer, fmt.Errorf("worker: the app's answer to a request of a batch has an invalid header %.64q", name)
		}
		if !grammar.IsHopField(name) && !strings.EqualFold(name, "Trailer") {
			answer.header[http.CanonicalHeaderKey(name)] = values
		}
	}
	return answer, nil
}

func (a jsonAnswer) write(rw http.ResponseWriter) {
	h := rw.Header()
	maps.Copy(h, a.header)
	body := a.body
	if grammar.HasNoBody(a.status) {
		body = nil
	}
	if _, typed := h["Content-Type"]; !typed && body != nil {
		h["Content-Type"] = []string{"application/json"}
	}
	rw.WriteHeader(a.status)
	_, _ = rw.Write(body) // should it fail, the client has left
}
