package yamlfile

import (
	"fmt"
	"strings"
	"testing"
)

// show writes what a file holds as the package reads it.
func show(n Node, depth int) string {
	if depth > 64 {
		return "…"
	}
	if !n.IsSet() {
		return "-"
	}
	switch fmt.Sprintf("%T", n.node) {
	case "*ast.MappingNode":
		var b strings.Builder
		for _, f := range n.Fields(nil) {
			b.WriteString(f.Name + "=" + show(f.Value, depth+1) + ";")
		}
		return "{" + b.String() + "}"
	case "*ast.SequenceNode":
		var b strings.Builder
		for _, e := range n.List() {
			b.WriteString(show(e, depth+1) + ";")
		}
		return "[" + b.String() + "]"
	}
	text, _ := n.Text()
	return text
}

func TestRead(t *testing.T) {
	for text, want := range map[string]string{
		"a: 1\nb: [x, 'y z', 2.50]\nc: {d: true}\n": "{a=1;b=[x;y z;2.50;];c={d=true;};}",
		"a:\n- b: 1\n  c: 0x10\n- d\n":              "{a=[{b=1;c=0x10;};d;];}",
		"a: |\n  text\n":                            "{a=text\n;}",
		"# nothing\n":                               "-",
		"":                                          "-",
	} {
		d, err := Parse("f", []byte(text))
		if err != nil {
			t.Errorf("%q: %v", text, err)
			continue
		}
		if got := show(d.Root(), 0); got != want || d.Err() != nil {
			t.Errorf("%q: %s, %v; want %s", text, got, d.Err(), want)
		}
	}
}

func TestMistakes(t *testing.T) {
	for text, want := range map[string]string{
		"a: 1\n  b: 2\n":                     "f:",
		"a: [1\n":                            "f:",
		"a: 1\na: 2\n":                       "f:2:1: ",
		"a: &x 1\nb: *x\n":                   "anchors",
		"a: !!str 1\n":                       "f:1:4: anchors",
		"a:\n":                               "want a value",
		"a: 1\n---\nb: 1\n":                  "f:3:1: a second document",
		"a: " + strings.Repeat("x", MaxSize): "at most",
		strings.Repeat("x", MaxSize+1):       "at most",
		"a: " + strings.Repeat("{a: ", 9) + "\t" + "\x00": "f:",
	} {
		d, err := Parse("f", []byte(text))
		if err == nil {
			show(d.Root(), 0)
			err = d.Err()
		}
		if err == nil || !strings.HasPrefix(err.Error(), "f:") || !strings.Contains(err.Error(), want) {
			t.Errorf("%.30q: %v, want %q", text, err, want)
		}
	}
	d, err := Parse("f", []byte("name: 1\nnmae: 2\n"))
	if err != nil {
		t.Fatal(err)
	}
	d.Root().Fields([]string{"name", "other"})
	if err := d.Err(); err == nil || err.Error() != `f:2:1: unknown field "nmae"; the nearest one is name` {
		t.Error(err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte("a: 1\nb: [x, {c: d}]\n"))
	f.Add([]byte("- a: |\n   b\n- &x c\n- *x\n"))
	f.Fuzz(func(_ *testing.T, data []byte) {
		if d, err := Parse("f", data); err == nil {
			show(d.Root(), 0)
			_ = d.Err()
		}
	})
}
