// Package keysource finds the key of a request, of net/http or not, at the places that a program
// names. Package gateway has what programs outside of the module need of it.
//
// Files: keysource.go reads the parts of a request's head, json.go its body, and key.go says what
// a key is.
package keysource

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/keyway-go/keyway/internal/pattern"
	"github.com/keyway-go/keyway/internal/wire/grammar"
)

// Source is a gateway.KeySource.
type Source struct {
	kind    string // the spec's first word; "" for a zero Source, which has no key
	name    string // of the header, parameter, cookie or wildcard
	path    pattern.Pattern
	pointer []string // of JSON
	chars   string   // see WithChars
	spec    string
}

const keyForms = "header:NAME, query:NAME, cookie:NAME, path:PATTERN (such as path:/orders/{key}), json:POINTER (such as json:/order/id), grpc:NAME, host or client"

// Parse is gateway.ParseKeySource.
func Parse(spec string) (Source, error) {
	kind, arg, _ := strings.Cut(spec, ":")
	s := Source{kind: kind, name: arg, spec: spec}
	var err error
	switch {
	case spec == "host", spec == "client", kind == "query" && arg != "":
	case kind == "header" && arg != "":
		s.name, err = checkHeaderName(arg)
		s.spec = "header:" + s.name
	case kind == "cookie" && arg != "":
		if !grammar.IsToken(arg) {
			err = errors.New("not a cookie's name")
		}
	case kind == "path" && arg != "":
		s.path, s.name, err = parsePathPattern(arg)
	case kind == "json" && arg != "":
		s.pointer, err = parsePointer(arg)
	case kind == "grpc" && arg != "":
		s.name, err = checkHeaderName(arg)
		s.spec = "grpc:" + strings.ToLower(s.name)
	default:
		err = errors.New("the forms are " + keyForms)
	}
	if err != nil {
		return Source{}, fmt.Errorf("gateway: bad key source %q: %w", spec, err)
	}
	return s, nil
}

// String returns the source's canonical form, which [Parse] accepts.
func (s Source) String() string { return s.spec }

// WithChars returns the source with further characters that its values may have in a
// path or a cookie: by default these have only what all known stacks read alike.
func (s Source) WithChars(chars string) Source {
	s.chars = chars
	return s
}

// ReadByApp reports whether an app that reads the value for itself may find another one
// than s: it stands in the path, the query, a cookie or the body.
func (s Source) ReadByApp() bool {
	return s.kind == "path" || s.kind == "query" || s.kind == "cookie" || s.kind == "json"
}

// IsPath reports whether s reads the path.
func (s Source) IsPath() bool { return s.kind == "path" }

// Header returns the canonical name of the header that s reads; "" if it reads
// something else.
func (s Source) Header() string {
	if s.kind != "header" && s.kind != "grpc" {
		return ""
	}
	return s.name
}

// parsePathPattern returns a pattern and the name of the wildcard that is the key.
func parsePathPattern(text string) (p pattern.Pattern, key string, err error) {
	if p, err = pattern.Parse(text); err != nil {
		return p, "", err
	}
	switch names := p.Wildcards(); {
	case slices.Contains(names, "key"):
		return p, "key", nil
	case len(names) == 1:
		return p, names[0], nil
	case len(names) == 0:
		return p, "", errors.New("the pattern has no wildcard, such as {key}")
	default:
		return p, "", fmt.Errorf("call one of the wildcards %s {key}", strings.Join(names, ", "))
	}
}

// Sources are a gateway.KeySources.
type Sources []Source

// String returns the sources' forms in their order, separated by spaces.
func (s Sources) String() string {
	specs := make([]string, len(s))
	for i := range s {
		specs[i] = s[i].spec
	}
	return strings.Join(specs, " ")
}

// Extract returns the key of the sources; all that have one must agree. A source is skipped if its
// part of the request is absent or empty. Host and client, which every request has, are skipped if
// an earlier source has a key. The error wraps [ErrNoKey] if every source is skipped. It wraps
// [ErrBadKey] if two sources differ, or if a value fails [Check] or could be read as another one;
// docs/routes.md has the rules.
func (s Sources) Extract(r *http.Request) (string, error) {
	return s.ExtractFrom((*httpRequest)(r))
}

// Keyed is the part of a request, of net/http or not, that key sources read.
type Keyed interface {
	KeyHeader(name string) []string // the values of the header of that canonical name
	KeyQuery() string               // the query as it was sent, without the question mark
	KeyPath() string                // the path as it was sent, percent-encoded
	KeyHost() string                // the host, with its port if it has one
	KeyClient() string              // the address from which it comes, without a port
	// KeyBody returns the body, of at most [MaxBody] bytes, nil if there is none.
	// The request still has it. An error that wraps [ErrBadKey] says that it is larger.
	KeyBody() ([]byte, error)
}

// Of returns the part of a request of net/http in which key sources look.
func Of(r *http.Request) Keyed { return (*httpRequest)(r) }

// Describe returns a request as an operator describes it. target is a URL or a path, and a header is NAME: VALUE.
func Describe(method, target, body string, headers []string) (*http.Request, error) {
	r, err := http.NewRequest(method, target, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	if r.URL.Host == "" && !strings.HasPrefix(target, "/") || strings.Contains(target, "#") {
		return nil, fmt.Errorf("%q is neither a URL such as http://shop.example/orders/42 nor a path such as /orders/42, without a #", target)
	}
	r.URL.Path = cmp.Or(r.URL.Path, "/")
	for _, header := range headers {
		name, value, ok := strings.Cut(header, ":")
		if !ok {
			return nil, fmt.Errorf("the header %q is not NAME: VALUE", header)
		}
		r.Header.Add(strings.TrimSpace(name), strings.TrimSpace(value))
	}
	return r, nil
}

type httpRequest http.Request

func (r *httpRequest) KeyHeader(name string) []string { return r.Header[name] }
func (r *httpRequest) KeyQuery() string               { return r.URL.RawQuery }
func (r *httpRequest) KeyPath() string                { return r.URL.EscapedPath() }
func (r *httpRequest) KeyHost() string                { return r.Host }
func (r *httpRequest) KeyClient() string              { return HostOf(r.RemoteAddr) }

func (r *httpRequest) KeyBody() ([]byte, error) {
	switch {
	case r.Body == nil || r.Body == http.NoBody || r.ContentLength == 0:
		return nil, nil
	case r.ContentLength > MaxBody:
		return nil, ErrBody
	}
	var read bytes.Buffer
	body, err := ReadBody(io.TeeReader(r.Body, &read))
	r.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(&read, r.Body), r.Body}
	return body, err
}

// ExtractFrom returns the key, as [Sources.Extract] does, of a request that is
// no [http.Request].
func (s Sources) ExtractFrom(r Keyed) (string, error) {
	have, from := "", 0
	for i := range s {
		if have != "" && (s[i].kind == "host" || s[i].kind == "client") {
			continue
		}
		key, err := s[i].extract(r)
		if err == nil && key == "" {
			continue
		}
		if err == nil {
			err = Check(key)
		}
		if err != nil {
			return "", fmt.Errorf("%w (from %s)", err, s[i].spec)
		}
		if have != "" && have != key {
			return "", fmt.Errorf("%w: %s and %s differ: send the same in both, or only one", ErrBadKey, s[from].spec, s[i].spec)
		}
		have, from = key, i
	}
	if have == "" {
		return "", fmt.Errorf("%w: send it in %s", ErrNoKey, strings.ReplaceAll(s.String(), " ", " or "))
	}
	return have, nil
}

// extract returns "" for a source that is absent.
func (s *Source) extract(r Keyed) (string, error) {
	switch s.kind {
	case "header":
		return keyFromHeader(r.KeyHeader(s.name))
	case "query":
		key, err := keyFromQuery(r.KeyQuery(), s.name)
		if key != "" && !isUTF8(r.KeyHeader("Content-Type"), key) {
			return "", errCharset // Django reads queries by it
		}
		return key, err
	case "cookie":
		return keyFromCookies(r.KeyHeader("Cookie"), s.name, s.chars)
	case "path":
		return s.keyFromPath(r.KeyPath())
	case "host":
		return HostName(r.KeyHost())
	case "json":
		return s.keyFromBody(r)
	case "grpc":
		return keyFromMetadata(s.name, r.KeyHeader(s.name))
	case "client":
		return keyFromClient(r.KeyClient()), nil
	}
	return "", nil
}

// errTwice is the error of what some apps read the first of, some the last, and some all.
var errTwice = fmt.Errorf("%w: given more than once: send it once", ErrBadKey)

// keyFromHeader takes a second field for a difference even if it is empty: WSGI joins both.
func keyFromHeader(values []string) (key string, err error) {
	switch len(values) {
	case 0:
		return "", nil
	case 1:
		return unescape(strings.Trim(values[0], " \t"), url.PathUnescape)
	}
	return "", errTwice
}

// maxParameters is how many parameters of a query all apps read.
const maxParameters = 1000

// keyFromQuery reads the query by itself, since url.ParseQuery drops what it
// cannot read and would let a parameter through that an app may yet see.
func keyFromQuery(query, name string) (key string, err error) {
	found, n := false, 0
	for pair := range strings.SplitSeq(query, "&") {
		if strings.Contains(pair, ";") {
			for part := range strings.SplitSeq(pair, ";") {
				part, _, _ = strings.Cut(part, "=")
				if is, like := compareName(part, name); is || like {
					return "", fmt.Errorf("%w: a semicolon beside it in the query: send %%3B", ErrBadKey)
				}
			}
			continue
		}
		n++
		parameter, v, _ := strings.Cut(pair, "=")
		switch is, like := compareName(parameter, name); {
		case like:
			return "", errName(parameter, name)
		case !is:
			continue
		case found, n > maxParameters:
			return "", errTwice
		}
		found = true
		if i := strings.IndexFunc(v, func(c rune) bool { return c <= ' ' || c >= 0x7f }); i >= 0 {
			return "", fmt.Errorf("%w: it has bytes that are not of ASCII: percent-encode them, as UTF-8", ErrBadKey)
		}
		if key, err = unescape(v, url.QueryUnescape); err != nil {
			return "", err
		}
	}
	return key, nil
}

func errName(raw, name string) error {
	return fmt.Errorf("%w: some apps take %.64q for %q: send the name as it is, once", ErrBadKey, raw, name)
}

// compareName reports whether raw, from a query or a cookie, is the name, or is like it. Some apps
// ignore case or surrounding spaces, cut a name at a bracket or a NUL, or write dots as _.
func compareName(raw, name string) (is, like bool) {
	if raw == name {
		return true, false
	}
	decoded := raw
	if strings.ContainsAny(raw, "%+") {
		var err error
		decoded, err = url.QueryUnescape(raw)
		if bad, ok := errors.AsType[url.EscapeError](err); ok { // what stands before it may count
			raw, _, _ = strings.Cut(raw, string(bad))
			decoded, _ = url.QueryUnescape(raw)
		} else if decoded == name && url.QueryEscape(name) != name { // it is ordinary to encode it
			return true, false
		}
	}
	if !strings.Contains(name, "[") {
		decoded = strings.TrimLeft(decoded, "[ ")
		if i := strings.IndexAny(decoded, "[]\x00"); i >= 0 {
			decoded = decoded[:i]
		}
	}
	decoded = strings.TrimFunc(decoded, func(c rune) bool { return unicode.IsSpace(c) || c == utf8.RuneError }) // of ISO 8859-1
	return false, strings.EqualFold(underscores.Replace(decoded), underscores.Replace(name))
}

var underscores = strings.NewReplacer(".", "_", " ", "_")

// keyFromCookies accepts the characters of cookies in RFC 6265 that all stacks read alike, and
// chars.
func keyFromCookies(lines []string, name, chars string) (key string, err error) {
	found, quoted := false, false
	for _, line := range lines {
		for pair := range strings.SplitSeq(line, ";") {
			quoted = quoted || strings.Count(pair, `"`)%2 != 0
			first, rest, divided := strings.Cut(pair, ",")
			if divided && !strings.Contains(first, "=") {
				rest = pair
			}
			for part := range strings.SplitSeq(rest, ",") {
				part, _, _ = strings.Cut(strings.TrimLeft(part, " \t"), "=")
				if is, like := compareName(part, name); is || like {
					return "", errName(part, name)
				}
			}
			cookie, v, _ := strings.Cut(strings.TrimLeft(pair, " \t"), "=")
			switch is, like := compareName(cookie, name); {
			case like:
				return "", errName(cookie, name)
			case !is:
				continue
			case found || len(lines) > 1:
				return "", errTwice
			}
			found = true
			for i := range len(v) {
				if c := v[i]; c <= ' ' || c >= 0x7f || strings.IndexByte(`"\,%+`, c) >= 0 && strings.IndexByte(chars, c) < 0 {
					return "", fmt.Errorf("%w: apps read %q in a cookie differently: send it without, or allow it by the route's chars", ErrBadKey, c)
				}
			}
			if key, err = unescape(v, url.PathUnescape); err != nil {
				return "", err
			}
		}
	}
	if found && quoted {
		return "", fmt.Errorf("%w: apps divide cookies with a semicolon in quotes differently: send none", ErrBadKey)
	}
	return key, nil
}

// keyFromPath refuses paths that an app may read as another one: it would see the
// same resource under two keys.
func (s *Source) keyFromPath(path string) (string, error) {
	raw, ok := s.path.Value(path, s.name)
	marks, clean := pattern.Look(path)
	switch {
	case !clean:
		return "", ErrBadPath
	case !ok && s.path.Misread(path, marks):
		return "", fmt.Errorf("%w: some apps would match this path to the pattern: send it in the pattern's own case, without escapes, backslashes or semicolons before the key", ErrBadKey)
	case !ok:
		return "", nil
	}
	if c := marks.Divider(path, s.chars); c != 0 {
		return "", fmt.Errorf("%w: apps read %q, encoded or not, in a path differently: send the key without, or allow it by the route's chars", ErrBadKey, c)
	}
	key, err := unescape(raw, url.PathUnescape)
	if err != nil {
		return "", err
	}
	if s.path.IsWhole(s.name) && !isInteger(key) {
		return "", fmt.Errorf("%w: it is not a whole number: send digits without a leading zero or plus, at most 2^53-1", ErrBadKey)
	}
	if c, odd := pattern.Odd(key, s.chars+"/"); odd {
		return "", fmt.Errorf("%w: not all apps read %q in a path alike: send a key without, or allow it by the route's chars", ErrBadKey, c)
	}
	return key, nil
}

// ErrBadPath says that an app may take a path for another one. It wraps [ErrBadKey].
var ErrBadPath = fmt.Errorf("%w: the path has a bad percent-encoding, or a segment that is empty or made of dots once it is decoded: send the path without", ErrBadKey)

// keyFromMetadata reads metadata of gRPC, whose values are base64 where the name ends
// in -bin, with or without padding.
func keyFromMetadata(name string, values []string) (key string, err error) {
	if !strings.HasSuffix(name, "-Bin") {
		return keyFromHeader(values)
	}
	for _, v := range values {
		for part := range strings.SplitSeq(v, ",") {
			if part = strings.Trim(part, " \t"); part == "" {
				continue
			}
			b, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(part, "="))
			if err != nil {
				return "", fmt.Errorf("%w: not base64", ErrBadKey)
			}
			if key != "" && key != string(b) {
				return "", fmt.Errorf("%w: given more than once with different values", ErrBadKey)
			}
			key = string(b)
		}
	}
	return key, nil
}

// keyFromClient returns an address in its canonical form.
func keyFromClient(addr string) string {
	ip, err := netip.ParseAddr(addr)
	if err != nil {
		return addr
	}
	return ip.Unmap().WithZone("").String()
}

// HostOf returns the host of a host:port, or the address itself if it has no port.
func HostOf(addr string) string {
	if host, _, err := net.SplitHostPort(addr); err == nil {
		return host
	}
	return addr
}

// HostName returns the name of a host as a key source has it: in lower case, without
// its port, brackets, and a dot at its end. Its error wraps [ErrBadKey].
func HostName(host string) (string, error) {
	name := strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	if strings.Contains(host, ":") && len(name) != len(host)-2 {
		var err error
		if name, _, err = net.SplitHostPort(host); err != nil {
			return "", fmt.Errorf("%w: some apps cut the host at its first colon: send a name with one port, or an IPv6 address in brackets", ErrBadKey)
		}
	}
	return strings.ToLower(strings.TrimSuffix(name, ".")), nil
}

func unescape(s string, how func(string) (string, error)) (string, error) {
	decoded, err := how(s)
	if err != nil {
		return "", fmt.Errorf("%w: bad percent-encoding (a percent sign of its own is written %%25)", ErrBadKey)
	}
	return decoded, nil
}

func checkHeaderName(name string) (string, error) {
	canonical := http.CanonicalHeaderKey(name)
	switch {
	case !grammar.IsToken(name):
		return "", errors.New("not a header's name")
	case strings.HasPrefix(canonical, "Keyway-"):
		return "", errors.New("headers under Keyway- are dropped when a client sends them")
	case canonical == "Host":
		return "", errors.New("the form for the host is host")
	case canonical == "Connection" || canonical == "Transfer-Encoding" || canonical == "Content-Length" || canonical == "Trailer" || canonical == "Te":
		return "", errors.New("this header frames the request")
	}
	return canonical, nil
}
