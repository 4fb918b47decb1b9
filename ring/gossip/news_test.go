package gossip

import (
	"bytes"
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/keyway-go/keyway/ring"
)

func testStatus(version uint64) status {
	return status{version, "LJ2VRCUYLZPWUYH5ZLXTLBHTNG", ring.StateActive, 1 << 60, 1<<63 + version, 1780000000}
}

func TestNewsTravel(t *testing.T) {
	want := testStatus(7)
	b := encodeNews("worker-1@BOOTBOOT00", want)
	t.Logf("%d bytes", len(b))
	for _, tail := range []string{"", "a field that a later version adds"} {
		node, got, err := decodeNews(append(bytes.Clone(b), tail...))
		if err != nil || got != want || node != "worker-1@BOOTBOOT00" {
			t.Errorf("with tail %q: %q, %+v, %v", tail, node, got, err)
		}
	}
	for n := range b {
		if _, _, err := decodeNews(b[:n]); err == nil {
			t.Errorf("the first %d of %d bytes decode", n, len(b))
		}
	}
	for what, wrong := range map[string]func(*status){
		"state": func(s *status) { s.state = 9 },
		"epoch": func(s *status) { s.epoch = epochLimit + 1 },
		"long":  func(s *status) { s.incarnation = strings.Repeat("x", metaLimit) },
	} {
		s := want
		wrong(&s)
		if _, _, err := decodeNews(encodeNews("a", s)); err == nil {
			t.Errorf("%s: accepted", what)
		}
	}
}

func FuzzDecodeNews(f *testing.F) {
	f.Add(encodeNews("worker-1@BOOTBOOT00", testStatus(7)))
	f.Add([]byte{newsMark})
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		each(b, func([]byte) {})
		node, s, err := decodeNews(b)
		if err != nil {
			return
		}
		if again, got, err := decodeNews(encodeNews(node, s)); err != nil && len(encodeNews(node, s)) <= metaLimit || err == nil && (again != node || got != s) {
			t.Fatalf("%q %+v becomes %q %+v, %v", node, s, again, got, err)
		}
	})
}

// reader reads what a newsroom has for its owner.
type reader struct {
	*newsroom
	latest map[string]peer
}

// met returns a newsroom that lists these nodes.
func met(names ...string) *reader {
	r := &reader{newNewsroom("self", func() {}), make(map[string]peer)}
	for _, name := range names {
		r.meet(name, []byte("meta"), peer{}, 0)
	}
	return r
}

// read reports whether there is something new.
func (r *reader) read() bool {
	before := r.latest
	r.latest, _, _ = r.take()
	return !maps.Equal(before, r.latest)
}

func (r *reader) expect(t *testing.T, what, name string, view uint64) {
	t.Helper()
	r.read()
	if p, ok := r.latest[name]; !ok || p.View != view {
		t.Errorf("%s: %s is known as %+v, want view %d", what, name, p, view)
	}
}

// Old news, which may come at any time by any way, undo nothing.
func TestOldNewsAreDropped(t *testing.T) {
	r := met("a")
	r.hear(encodeNews("a", testStatus(2)), true)
	for _, version := range []uint64{1, 2} {
		r.read()
		if r.hear(encodeNews("a", testStatus(version)), true); r.read() {
			t.Errorf("version %d was published after version 2", version)
		}
	}
	r.expect(t, "old news", "a", testStatus(2).view)
	r.meet("a", []byte("other"), peer{}, 1)
	r.expect(t, "older metadata", "a", testStatus(2).view)
	r.meet("a", []byte("other"), peer{Member: ring.Member{View: 5}}, 3)
	r.expect(t, "newer metadata", "a", 5)
}

// What this member says of itself comes from nobody else.
func TestNobodyTellsOurNews(t *testing.T) {
	r := met("a")
	r.tell(testStatus(1))
	if r.hear(encodeNews("self", testStatus(9)), true); r.nodes["self"].version != 1 {
		t.Errorf("heard of ourselves: %+v", r.nodes["self"])
	}
}

// News of a node that comes later, or was taken for dead by mistake, are not lost, and bring back
// nobody who is gone; nor is there room for any number of them.
func TestNewsOfNodesThatAreNotThere(t *testing.T) {
	r := met("a")
	r.hear(encodeNews("late", testStatus(3)), true)
	r.part("a")
	if r.hear(encodeNews("a", testStatus(4)), true); r.read() || len(r.latest) > 0 {
		t.Errorf("nodes that are not listed are published: %v", r.latest)
	}
	for name, version := range map[string]uint64{"late": 3, "a": 4} {
		r.meet(name, []byte("meta"), peer{}, 0)
		r.expect(t, "listed again", name, testStatus(version).view)
	}
	for i := range 2 * unlistedBound {
		r.hear(encodeNews(fmt.Sprint("stranger-", i), testStatus(1)), true)
	}
	if len(r.nodes) > unlistedBound+2 {
		t.Errorf("keeps news of %d strangers", len(r.nodes)-2)
	}
	if r.forget(); len(r.nodes) != 2 {
		t.Error("strangers are not forgotten")
	}
}

// Each piece of news is sent a few times, fresh ones first, within the room of a packet.
func TestNewsAreRepeated(t *testing.T) {
	r := met("a", "b", "c")
	r.tell(testStatus(1))
	first := encodeNews("self", testStatus(1))
	if got := r.next(3, 2*len(first)); len(got) != 1 || !bytes.Equal(got[0], first) {
		t.Fatalf("sent %q", got)
	}
	fresh := encodeNews("a", testStatus(2))
	r.hear(fresh, true)
	r.hear(encodeNews("b", testStatus(2)), false) // all have told each other
	if got := r.next(0, len(fresh)); len(got) != 1 || !bytes.Equal(got[0], fresh) {
		t.Errorf("sent %q before the fresh ones", got)
	}
	count := map[string]int{string(first): 1, string(fresh): 1}
	for messages := r.next(0, 1<<10); len(messages) > 0; messages = r.next(0, 1<<10) {
		for _, m := range messages {
			count[string(m)]++
		}
	}
	if len(count) != 2 || count[string(first)] != 7 || count[string(fresh)] != 7 {
		t.Errorf("sent %v, want each 7 times", count)
	}
}
