package suspects_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/keyway-go/keyway/internal/suspects"
)

var start = time.Unix(1_800_000_000, 0)

// TestKeys tells what happens to keys, word by word: a/k accuses worker a of k, +k is the end of an execution, -a acquits
// worker a, !k releases, @5m lets time pass, and k=unknown, suspect or quarantined is what must be known.
func TestKeys(t *testing.T) {
	tests := map[string]string{
		"a death makes a suspect":               "k=unknown a/k k=suspect l=unknown",
		"two deaths quarantine":                 "a/k b/k k=quarantined",
		"of one worker they are one":            "a/k a/k k=suspect",
		"keys of one worker add up":             "a/k a/l k=suspect l=suspect",
		"other keys of a death are suspects":    "a/k,l b/k k=quarantined l=suspect",
		"an end between deaths clears":          "a/k,l +l b/k,l k=quarantined l=suspect",
		"an end clears all deaths":              "a/k +k k=unknown",
		"an end of another key does not":        "a/k +l b/k k=quarantined",
		"nobody is dead whose session lives":    "live/k a/k k=suspect",
		"nor does what is said of it stay":      "live/k k=suspect +k k=unknown",
		"a worker that has not died":            "a/k,l b/k -a k=suspect l=unknown",
		"deaths that are far apart":             "a/k @9m b/k k=quarantined",
		"deaths that are too far apart":         "a/k @10m b/k k=suspect",
		"suspicion ends":                        "a/k @9m k=suspect @1m k=unknown",
		"a noted quarantine lasts":              "a/k @9m b/k ?k @9m k=quarantined @1m k=unknown",
		"one that is not noted ends with death": "a/k @9m b/k @1m k=suspect",
		"release":                               "a/k b/k ?k k=quarantined !k k=unknown",
		"release of a suspect":                  "a/k !k k=unknown b/k k=suspect",
		"released keys can be accused anew":     "a/k b/k ?k !k c/k d/k k=quarantined",
		"an end does not release":               "a/k b/k ?k +k k=quarantined",
	}
	for name, story := range tests {
		t.Run(name, func(t *testing.T) {
			var b suspects.Book
			now := start
			alive := func(worker string) bool { return worker == "live" }
			for word := range strings.FieldsSeq(story) {
				worker, keys, accuses := strings.Cut(word, "/")
				key, want, asks := strings.Cut(word, "=")
				_, quarantined, suspect := b.Find(strings.TrimLeft(key, "?"), now, alive)
				switch {
				case accuses:
					var hashes []uint64
					for k := range strings.SplitSeq(keys, ",") {
						hashes = append(hashes, suspects.Hash(k))
					}
					b = b.Accuse(worker, now, hashes)
				case asks:
					if is := map[bool]string{true: "quarantined", false: map[bool]string{true: "suspect", false: "unknown"}[suspect]}[quarantined]; is != want {
						t.Errorf("%s: it is %s: %s", word, is, b)
					}
				case word[0] == '+':
					b = b.Clear(word[1:])
				case word[0] == '-':
					b = b.Acquit(word[1:])
				case word[0] == '!':
					b = b.Release(word[1:])
				case word[0] == '?':
					c, _, _ := b.Find(word[1:], now, alive)
					b = b.Quarantine(c).Quarantine(c)
				case word[0] == '@':
					d, err := time.ParseDuration(word[1:])
					if err != nil {
						t.Fatal(err)
					}
					now = now.Add(d)
					b = b.After(now)
				}
				if again, err := suspects.Parse(b.String()); err != nil || again.String() != b.String() {
					t.Fatalf("%s: %v: %q became %q", word, err, b, again)
				}
			}
		})
	}
}

func TestBounds(t *testing.T) {
	var b suspects.Book
	var many []uint64
	for i := range 2 * suspects.MostKeys {
		many = append(many, suspects.Hash(fmt.Sprint(i)))
	}
	for i := range 2 * suspects.MostDeaths {
		b = b.Accuse(fmt.Sprint("w", i), start, many)
	}
	if len(b.Deaths) != suspects.MostDeaths || b.Deaths[0].Worker != fmt.Sprint("w", suspects.MostDeaths) {
		t.Errorf("%d deaths, the first of %s", len(b.Deaths), b.Deaths[0].Worker)
	}
	for _, d := range b.Deaths {
		if len(d.Keys) != suspects.MostKeys {
			t.Errorf("%s has %d keys", d.Worker, len(d.Keys))
		}
	}
	if !slices.ContainsFunc(b.Deaths, func(d suspects.Death) bool { return slices.Contains(d.Keys, slices.Max(many)) }) {
		t.Error("the key with the greatest hash is in no death")
	}
	dead, quarantined := func(string) bool { return false }, 0
	for i := range 2 * suspects.MostKeys {
		if c, is, _ := b.Find(fmt.Sprint(i), start, dead); is {
			b = b.Quarantine(c)
			quarantined++
		}
	}
	if quarantined != suspects.MostQuarantined || len(b.Cases) != quarantined {
		t.Errorf("%d keys are quarantined, %d noted", quarantined, len(b.Cases))
	}
	if again, err := suspects.Parse(b.String()); err != nil || again.String() != b.String() {
		t.Errorf("a full book: %v", err)
	}
	if n := len(b.String()); n > 64<<10 {
		t.Errorf("a full book has %d bytes", n)
	}
}

func TestParseErrors(t *testing.T) {
	death, quarantined := `{"worker":"a","at":1,"keys":[2]}`, `{"key":"k","since":1,"workers":["a","b"]}`
	deaths := func(list ...string) string { return `{"deaths":[` + strings.Join(list, ",") + `]}` }
	cases := func(list ...string) string { return `{"cases":[` + strings.Join(list, ",") + `]}` }
	for _, text := range []string{deaths(death), cases(quarantined)} {
		if b, err := suspects.Parse(text); err != nil || b.String() != text {
			t.Errorf("%s became %s: %v", text, b, err)
		}
	}
	for _, text := range []string{
		"nonsense", "\n", deaths(`{"worker":"","at":1,"keys":[2]}`), deaths(`{"worker":"a","at":1,"keys":[]}`), deaths(`{"worker":"a","at":1}`),
		deaths(`{"worker":"a","at":"x","keys":[2]}`), deaths(`{"worker":"a","at":1,"keys":[-2]}`), deaths(`{"worker":"a","at":1,"keys":[2` + strings.Repeat(",2", suspects.MostKeys) + `]}`),
		deaths(slices.Repeat([]string{death}, suspects.MostDeaths+1)...), cases(`{"key":"","since":1,"workers":["a","b"]}`), cases(`{"key":"k","since":1,"workers":["a"]}`),
		cases(slices.Repeat([]string{quarantined}, suspects.MostQuarantined+1)...),
	} {
		if b, err := suspects.Parse(text); err == nil {
			t.Errorf("%.40q was read as %+v", text, b)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add(`{"deaths":[{"worker":"a b","at":1800000000,"keys":[255,1]}],"cases":[{"key":"k<\\n","since":1800000000,"workers":["a","b"]}]}`)
	f.Add("")
	f.Fuzz(func(t *testing.T, text string) {
		b, err := suspects.Parse(text)
		if err != nil {
			return
		}
		again, err := suspects.Parse(b.String())
		if err != nil || again.String() != b.String() {
			t.Errorf("%q became %q: %v", b, again, err)
		}
	})
}
