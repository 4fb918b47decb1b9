package placement_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/keyway-go/keyway/internal/placement"
)

func TestEncode(t *testing.T) {
	list := []placement.Placement{
		{Partition: 40, Worker: "b", Pinned: true}, {Partition: 17, Worker: "a"}, {Partition: 0, Worker: "b"}, {Partition: 20, Worker: "a", Pinned: true},
	}
	const want = "\"a\" 17 3!\n\"b\" 0 40!\n"
	if got := placement.Encode(list); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	got, err := placement.Decode(want)
	if err != nil {
		t.Fatal(err)
	}
	if want := []placement.Placement{list[2], list[1], list[3], list[0]}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if got, err := placement.Decode(placement.Encode(nil)); len(got) != 0 || err != nil {
		t.Errorf("none: got %v, %v", got, err)
	}
}

func TestDecodeRefuses(t *testing.T) {
	many := "\"a\" 0" + strings.Repeat(" 1", placement.Most) + "\n"
	for name, text := range map[string]string{
		"no name":                "17\n",
		"an empty name":          "\"\" 17\n",
		"a long name":            fmt.Sprintf("%q 17\n", strings.Repeat("a", 129)),
		"no partition":           "\"a\"\n",
		"no end of the line":     "\"a\" 17",
		"no number":              "\"a\" x\n",
		"a negative number":      "\"a\" -1\n",
		"a sign":                 "\"a\" +1\n",
		"zeros":                  "\"a\" 01\n",
		"a large partition":      "\"a\" 1048576\n",
		"a large sum":            "\"a\" 1048575 1\n",
		"a partition twice":      "\"a\" 17 0\n",
		"a partition of two":     "\"a\" 17\n\"b\" 17\n",
		"a worker twice":         "\"a\" 17\n\"a\" 18\n",
		"workers without order":  "\"b\" 17\n\"a\" 18\n",
		"another kind of quotes": "`a` 17\n",
		"too many":               many,
	} {
		if got, err := placement.Decode(text); !errors.Is(err, placement.ErrText) {
			t.Errorf("%s: got %v, %v", name, got, err)
		}
	}
	if _, err := placement.Decode(strings.Replace(many, " 1", "", 1)); err != nil {
		t.Error("as many as there may be:", err)
	}
}

// The text is small, even with many placements of long names.
func TestEncodedSize(t *testing.T) {
	var list []placement.Placement
	for i := range placement.Most {
		list = append(list, placement.Placement{Partition: 4 * i, Worker: fmt.Sprintf("%040d", i*7%20)})
	}
	if n := len(placement.Encode(list)); n > 16<<10 {
		t.Errorf("%d bytes", n)
	} else {
		t.Logf("%d bytes", n)
	}
}

func FuzzDecode(f *testing.F) {
	f.Add("\"a\" 17 3!\n\"b\" 0 40!\n")
	f.Add("\"a\\xff\" 1048575\n")
	f.Fuzz(func(t *testing.T, text string) {
		list, err := placement.Decode(text)
		if err != nil {
			if !errors.Is(err, placement.ErrText) {
				t.Error(err)
			}
			return
		}
		if got := placement.Encode(list); got != text {
			t.Errorf("%q becomes %q", text, got)
		}
		if len(list) > placement.Most || !slices.IsSortedFunc(list, func(p, q placement.Placement) int { return p.Partition - q.Partition }) {
			t.Errorf("%q: %v", text, list)
		}
	})
}
