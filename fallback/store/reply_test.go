package store

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/keyway-go/keyway/fallback/internal/stores"
	"github.com/keyway-go/keyway/internal/records"
)

func TestOpenReply(t *testing.T) {
	for status, want := range map[string]error{"ok": nil, "generation": records.ErrGeneration, "gone": records.ErrSessionGone, "else": stores.ErrFields} {
		if _, err := new(Store).openReply([]any{status, "x"}); !errors.Is(err, want) {
			t.Errorf("status %s gave %v, want %v", status, err, want)
		}
	}
	if _, err := new(Store).openReply(nil); !errors.Is(err, stores.ErrFields) {
		t.Errorf("an empty reply gave %v", err)
	}
	if _, err := new(Store).openReply([]any{int64(1)}); !errors.Is(err, stores.ErrFields) {
		t.Errorf("a numeric status gave %v", err)
	}
}

// decode reads a reply.
func decode(values []any) (changes, error) {
	f := stores.Values(values)
	c := readChanges(f)
	return c, f.End()
}

func TestDecodeChanges(t *testing.T) {
	reply := func() []any {
		return []any{"gen", "1500", "42", "9", "1000",
			[]any{"a", "1:n,1:h,1:g,4:3000,", "7", "e", "", "8", "r", "", "0"},
			[]any{"a", "7"},
			[]any{"placed"},
			[]any{},
			[]any{"3", "1:9,1:a,1:8,1:k,1:b,2:12,", "text", []any{"id", "lock"}}}
	}
	s, err := decode(reply())
	if err != nil {
		t.Fatal(err)
	}
	want := records.PartitionState{Partition: 3, Record: records.Record{Epoch: 9, Owner: "a"}, Moved: 8, Locks: "text", Written: []records.WrittenLock{{ID: "id", Text: "lock"}}, Residue: []records.Residue{{Key: "k", Holder: "b", Token: 12}}}
	if s.Generation != "gen" || s.Now != time.Second || s.Version != 42 || s.Beat != 9 || s.Quarantine.Milliseconds() != 1500 || !slices.Equal(s.Stamps, []records.Stamp{{Incarnation: "a", Beat: 7}}) ||
		len(s.members) != 3 || s.notes[0] == nil || *s.notes[0] != "placed" || s.notes[1] != nil || s.members["a"].session.Gossip != "g" || s.members["a"].session.Joins != 3*time.Second || s.members["e"] != (member{stamp: 8}) || s.members["r"] != (member{}) ||
		len(s.Partitions) != 1 || s.Partitions[0].Moved != want.Moved || s.Partitions[0].Locks != want.Locks || !slices.Equal(s.Partitions[0].Written, want.Written) || s.Partitions[0].Record != want.Record || !slices.Equal(s.Partitions[0].Residue, want.Residue) {
		t.Errorf("got %+v", s)
	}
	none := []any{}
	for i, broken := range [][]any{
		{nil, int64(5), []any{}},
		{nil, "", "x", "1.5", []any{}},
		{nil, "", "x", "99999999999999999999"},
		{nil, "", "x"},
		{nil, "", "x"},
		{nil, "x", []any{"a"}, []any{"e", "", "x"}, []any{"a", "1:n,1:h,1:g,", "7"}, []any{"a", "1:n,1:h,1:g,1:x,", "7"}, []any{"a", "1:n", "7"}, []any{nil, nil, nil}},
		{nil, "x", []any{"a"}, []any{"a", "x"}, []any{nil, "1"}, []any{"a", []any{}}},
		{nil, "x", []any{nil}},
		{nil, "x", []any{nil}},
		{nil, "x", []any{"3"}, []any{"x", "1:9,1:a,1:8,", "", none}, []any{"3", "1:9,1:a,", "", none}, []any{"3", "1:x,1:a,1:8,", "", none}, []any{"3", "1:9,1:a,1:x,", "", none},
			[]any{"3", "1:9,1:a,1:8,1:k,", "", none}, []any{"3", "1:9,1:a,1:8,1:k,1:b,1:x,", "", none}, []any{"3", "-1:9,", "", none}, []any{"3", "1:9,1:a,1:8", "", none},
			[]any{"3", nil, "", none}, []any{"3", "1:9,1:a,1:8,"}, []any{"3", "1:9,1:a,1:8,", nil, none}, []any{"3", "1:9,1:a,1:8,", ""},
			[]any{"3", "1:9,1:a,1:8,", "", ""}, []any{"3", "1:9,1:a,1:8,", "", []any{"id"}}, []any{"3", "1:9,1:a,1:8,", "", []any{"id", nil}}},
	} {
		for _, bad := range broken {
			values := reply()
			values[i] = bad
			if _, err := decode(values); !errors.Is(err, stores.ErrFields) {
				t.Errorf("with value %d replaced by %v got error %v", i, bad, err)
			}
		}
		if _, err := decode(reply()[:i]); !errors.Is(err, stores.ErrFields) {
			t.Errorf("cut after %d values got error %v", i, err)
		}
	}
	if _, err := decode(append(reply(), "more")); !errors.Is(err, stores.ErrFields) {
		t.Errorf("a value left over got error %v", err)
	}
}

func FuzzHint(f *testing.F) {
	f.Add(int64(7), "gen", 3, int64(9), "a", "7")
	f.Fuzz(func(t *testing.T, version int64, generation string, partition int, epoch int64, owner, garbage string) {
		value := netstring(fmt.Sprint(epoch)) + netstring(owner) + netstring("8")
		text := netstring(fmt.Sprint(version)) + netstring(generation)
		want := records.Hint{Generation: generation, Version: version}
		if h := readHint(text); !reflect.DeepEqual(h, want) {
			t.Errorf("%q gave %+v", text, h)
		}
		text += netstring(fmt.Sprint(partition)) + netstring(value)
		want.Partitions = []records.PartitionState{{Partition: partition, Record: records.Record{Epoch: epoch, Owner: owner}, Moved: 8}}
		if h := readHint(text); !reflect.DeepEqual(h, want) {
			t.Errorf("%q gave %+v", text, h)
		}
		if h := readHint(text[:len(text)-1]); !reflect.DeepEqual(h, records.Hint{}) {
			t.Errorf("%q without its end gave %+v", text, h)
		}
		readHint(garbage)
	})
}

func FuzzDecodePartition(f *testing.F) {
	f.Add("3", "1:9,1:a,1:8,1:k,1:b,2:12,", "text")
	f.Add("", "1:", "")
	f.Add("0", "99999999999999999999:x,", "")
	f.Fuzz(func(t *testing.T, p, value, locks string) {
		fields := stores.Values([]any{[]any{p, value, locks, []any{}}, "rest"})
		states := readPartitions(fields)
		if fields.Err == nil && len(states) != 1 {
			t.Errorf("%q %q gave %v without an error", p, value, states)
		}
	})
}

func FuzzDecodeChanges(f *testing.F) {
	f.Add("gen", "0", "1", "7", "2", "inc", "5", "0:,0:,0:,1:3,", "9", "1:1,0:,1:0,", "text")
	f.Fuzz(func(t *testing.T, gen, quarantine, version, beat, now, inc, stamp, details, p, value, locks string) {
		c, err := decode([]any{gen, quarantine, version, beat, now, []any{inc, details, stamp}, []any{inc, stamp}, []any{p, value, locks, []any{p, value}}})
		if err == nil && (len(c.members) != 1 || len(c.Stamps) != 1 || len(c.Partitions) != 1 || c.Generation != gen) {
			t.Errorf("got %+v without an error", c)
		}
		if err != nil && !errors.Is(err, stores.ErrFields) {
			t.Errorf("got %v", err)
		}
	})
}

// What the scripts write as netstrings comes back as it was.
func FuzzNetstrings(f *testing.F) {
	f.Add("", "a:b,", "\xff")
	f.Fuzz(func(t *testing.T, a, b, c string) {
		var s strings.Builder
		for _, field := range []string{a, b, c} {
			s.WriteString(netstring(field))
		}
		f := stores.Read(s.String())
		if got := []string{f.Text(), f.Text(), f.Text()}; f.Err != nil || f.More() || !slices.Equal(got, []string{a, b, c}) {
			t.Errorf("%q came back as %q, %v", []string{a, b, c}, got, f.Err)
		}
	})
}

func netstring(s string) string { return fmt.Sprintf("%d:%s,", len(s), s) }
