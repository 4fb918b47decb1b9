package grammar_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/keyway-go/keyway/internal/wire/grammar"
)

// Each byte, by the RFCs' own lists.
func TestBytes(t *testing.T) {
	for c := range 256 {
		lower := 'a' <= c && c <= 'z' || '0' <= c && c <= '9' || c < 128 && strings.ContainsRune("!#$%&'*+-.^_`|~", rune(c))
		token := lower || 'A' <= c && c <= 'Z'
		text := c >= ' ' && c != 0x7f || c == '\t'
		for name, tt := range map[string]struct{ got, want bool }{
			"IsToken":      {grammar.IsToken([]byte{'a', byte(c)}), token},
			"IsLowerToken": {grammar.IsLowerToken([]byte{'a', byte(c)}), lower},
			"IsTarget":     {grammar.IsTarget([]byte{'/', byte(c)}), c > ' ' && c != 0x7f},
			"IsText":       {grammar.IsText([]byte{byte(c)}), text},
			"IsText, long": {grammar.IsText("12345678" + string([]byte{'1', byte(c)}) + "234567"), text},
			"IsValue":      {grammar.IsValue([]byte{'a', byte(c), 'b'}), text},
			"IsValue, end": {grammar.IsValue([]byte{'a', byte(c)}), text && c != ' ' && c != '\t'},
			"ParseLength":  {isLength(string([]byte{'1', byte(c)})), '0' <= c && c <= '9'},
		} {
			if tt.got != tt.want {
				t.Errorf("%s with byte %#02x: %v, want %v", name, c, tt.got, tt.want)
			}
		}
	}
	if grammar.IsToken("") || grammar.IsLowerToken("") || grammar.IsTarget("") || isLength("") {
		t.Error("nothing is a token, a target or a length")
	}
	if !grammar.IsText("") || !grammar.IsValue("") || grammar.IsValue(" a") {
		t.Error("a value may be empty, and does not begin with a space")
	}
}

func isLength(s string) bool {
	_, ok := grammar.ParseLength(s)
	return ok
}

func TestParseLength(t *testing.T) {
	for s, want := range map[string]int64{
		"0": 0, "007": 7, "42": 42, "9223372036854775807": 1<<63 - 1, "00000000000000000000001": 1,
		"9223372036854775808": -1, "18446744073709551617": -1, "99999999999999999999": -1, "-1": -1, "+1": -1, "1 ": -1, "1,1": -1, "0x1": -1, "1_0": -1,
	} {
		n, ok := grammar.ParseLength(s)
		if !ok {
			n = -1
		}
		if n != want {
			t.Errorf("%q: %d, want %d", s, n, want)
		}
	}
}

func TestHasNoBody(t *testing.T) {
	for status := 100; status < 600; status++ {
		if got, want := grammar.HasNoBody(status), status < 200 || status == 204 || status == 304; got != want {
			t.Errorf("%d: %v, want %v", status, got, want)
		}
		if grammar.HasBody("HEAD", status) || grammar.HasBody("GET", status) == grammar.HasNoBody(status) {
			t.Errorf("%d: HasBody contradicts HasNoBody", status)
		}
	}
}

func TestValues(t *testing.T) {
	for v, want := range map[string]string{
		"": "", "a": "a", " a\tb \t": "a\tb", "a\r\nb: c": "a  b: c", "\x00a\x7f": "a", "caf\xe9\x80": "caf\xe9\x80", "12345678\n": "12345678",
	} {
		got := grammar.CleanValue(v)
		if got != want || !grammar.IsValue(got) {
			t.Errorf("%q becomes %q, want %q", v, got, want)
		}
	}
}

func TestItems(t *testing.T) {
	got := slices.Collect(grammar.Items([]string{"a, b\t,,", "", " , c"}))
	if want := []string{"a", "b", "c"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	for item := range grammar.Items([]string{"a, b"}) {
		if item != "a" {
			t.Error("goes on when told to stop")
		}
		break
	}
}

// Names, in any case; each with the kinds that it is of.
func TestNames(t *testing.T) {
	for name, want := range map[string]string{
		"Connection": "connection hop", "keep-alive": "connection hop", "Proxy-CONNECTION": "connection hop", "Upgrade": "connection hop",
		"Transfer-Encoding": "connection hop framing", "content-LENGTH": "hop framing before", "HTTP2-Settings": "hop", "Expect": "hop before",
		"Te": "before", "Trailer": "before", "Host": "before", "If-Match": "before", "Authorization": "before", "Cookie": "before",
		"Content-Type": "before", "X-Any": "", "Content_Length": "", "": "", "Set-Cookie": "", "Expect-CT": "", "Upgrade-Insecure-Requests": "",
		"transfer-encodinġ": "", "\u212aeep-Alive": "",
	} {
		var got []string
		for kind, is := range map[string]bool{
			"connection": grammar.IsConnectionField(name), "hop": grammar.IsHopField([]byte(name)),
			"framing": grammar.IsFramingField(name), "before": grammar.IsBeforeBody(strings.ToLower(name)),
		} {
			if is {
				got = append(got, kind)
			}
		}
		slices.SortFunc(got, func(a, b string) int { return strings.Index(order, a) - strings.Index(order, b) })
		if strings.Join(got, " ") != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}

const order = "connection hop framing before"

// Text is judged eight bytes at a time as it is byte by byte.
func FuzzIsText(f *testing.F) {
	f.Add("text/html; charset=utf-8")
	f.Add("1234567\x7f")
	f.Fuzz(func(t *testing.T, v string) {
		want := true
		for i := range len(v) {
			want = want && (v[i] >= ' ' && v[i] != 0x7f || v[i] == '\t')
		}
		if got := grammar.IsText(v); got != want || got != grammar.IsText([]byte(v)) {
			t.Errorf("%q: %v, want %v", v, got, want)
		}
		if got := grammar.CleanValue(v); !grammar.IsValue(got) {
			t.Errorf("%q becomes %q, which is no value", v, got)
		}
	})
}
