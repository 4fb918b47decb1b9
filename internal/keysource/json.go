package keysource

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/keyway-go/keyway/internal/wire/grammar"
)

// MaxBody is the size in bytes of the largest body that may hold a key.
const MaxBody = 64 << 10

// ErrBody says that a body that should hold a key is larger than [MaxBody]. It wraps [ErrBadKey].
var ErrBody = fmt.Errorf("%w: the body has more than %d bytes", ErrBadKey, MaxBody)

// ReadBody reads a body that should hold a key. Its error wraps [ErrBadKey].
func ReadBody(r io.Reader) ([]byte, error) {
	body, err := io.ReadAll(io.LimitReader(r, MaxBody+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("%w: the body did not arrive: %w", ErrBadKey, err)
	case len(body) > MaxBody:
		return nil, ErrBody
	}
	return body, nil
}

// maxExact is the largest integer of JSON that every app reads as the same: many take
// numbers for floats (RFC 8259, section 6).
const maxExact = 1<<53 - 1

// parsePointer reads a JSON Pointer (RFC 6901) to something inside of a document.
func parsePointer(text string) ([]string, error) {
	if !strings.HasPrefix(text, "/") {
		return nil, errors.New("a JSON Pointer begins with a slash, such as /order/id")
	}
	tokens := strings.Split(text[1:], "/")
	for i, t := range tokens {
		if rest := strings.NewReplacer("~0", "", "~1", "").Replace(t); strings.Contains(rest, "~") {
			return nil, errors.New("in a JSON Pointer ~ is written ~0, and / within a name ~1")
		}
		tokens[i] = strings.ReplaceAll(strings.ReplaceAll(t, "~1", "/"), "~0", "~")
	}
	return tokens, nil
}

// keyFromBody returns what the pointer leads to in the request's body. It refuses
// what two readers of JSON may understand in two ways: a client could have its
// request run under one key, and the app work on another.
func (s *Source) keyFromBody(r Keyed) (string, error) {
	body, err := r.KeyBody()
	if err != nil || len(body) == 0 {
		return "", err
	}
	switch {
	case !isJSON(r.KeyHeader("Content-Type")):
		return "", fmt.Errorf("%w: the body's Content-Type is not application/json", ErrBadKey)
	case !isUTF8(r.KeyHeader("Content-Type"), grammar.Text(body)):
		return "", errCharset
	case len(r.KeyHeader("Content-Encoding")) > 0:
		return "", fmt.Errorf("%w: the body has a Content-Encoding", ErrBadKey)
	case !utf8.Valid(body) || !json.Valid(body):
		return "", fmt.Errorf("%w: the body is not JSON in UTF-8", ErrBadKey)
	}
	d := json.NewDecoder(bytes.NewReader(body))
	d.UseNumber()
	key, err := lookUp(d, s.pointer)
	if err == nil && strings.ContainsRune(key, utf8.RuneError) {
		return "", fmt.Errorf("%w: half of a surrogate pair, or U+FFFD, which some apps read for it", ErrBadKey)
	}
	return key, err
}

var errCharset = fmt.Errorf("%w: the Content-Type has a charset, or a way to write one, that not all apps know: send charset=utf-8, or none", ErrBadKey)

// isUTF8 reports whether all apps take the text, of these types, for UTF-8, however they
// read parameters.
func isUTF8(contentTypes []string, text string) bool {
	for _, t := range contentTypes {
		_, parameters, _ := strings.Cut(t, ";")
		for parameter := range strings.SplitSeq(parameters, ";") {
			name, value, _ := strings.Cut(strings.ToLower(grammar.Trim(parameter)), "=")
			value, quoted := strings.CutPrefix(value, `"`)
			value, ended := strings.CutSuffix(value, `"`)
			known := name == "charset" && (value == "utf-8" || value == "us-ascii" && len(text) == utf8.RuneCountInString(text)) || !strings.Contains(name, "charset")
			if !known || quoted != ended || strings.ContainsAny(value, `"\`) {
				return false
			}
		}
	}
	return true
}

func isJSON(contentType []string) bool {
	if len(contentType) != 1 {
		return false
	}
	kind, _, err := mime.ParseMediaType(contentType[0])
	return err == nil && (kind == "application/json" || strings.HasPrefix(kind, "application/") && strings.HasSuffix(kind, "+json"))
}

// lookUp reads a well-formed value and returns the key that the pointer leads to, "" if there is
// nothing or null. Names that differ only in case count as one, since some JSON readers find
// either.
func lookUp(d *json.Decoder, pointer []string) (key string, err error) {
	token, err := d.Token()
	begin, nested := token.(json.Delim)
	switch {
	case err != nil:
		return "", err
	case len(pointer) == 0 && nested:
		return "", errKeyForm
	case len(pointer) == 0:
		return scalarKey(token)
	case !nested:
		return "", nil
	}
	found := false
	for i := 0; d.More(); i++ {
		name := strconv.Itoa(i)
		if begin == '{' {
			if token, err = d.Token(); err != nil {
				return "", err
			}
			name, _ = token.(string)
		}
		switch {
		case !strings.EqualFold(name, pointer[0]):
			err = d.Decode(new(json.RawMessage))
		case found || name != pointer[0]:
			return "", fmt.Errorf("%w: the body has %q more than once, or in another case", ErrBadKey, pointer[0])
		default:
			found = true
			key, err = lookUp(d, pointer[1:])
		}
		if err != nil {
			return "", err
		}
	}
	_, err = d.Token()
	return key, err
}

// errKeyForm is the error of a value that is no key.
var errKeyForm = fmt.Errorf("%w: in the body it is neither a string nor an integer of at most 2^53-1", ErrBadKey)

// scalarKey returns a string as it is, and an integer in canonical decimal.
func scalarKey(token json.Token) (string, error) {
	switch v := token.(type) {
	case nil:
		return "", nil
	case string:
		return v, nil
	case json.Number:
		if isInteger(string(v)) {
			return string(v), nil
		}
	}
	return "", errKeyForm
}

// isInteger reports whether text is an integer as every app writes and reads it.
func isInteger(text string) bool {
	n, err := strconv.ParseInt(text, 10, 64)
	return err == nil && strconv.FormatInt(n, 10) == text && -maxExact <= n && n <= maxExact
}
