package holds_test

import (
	"bytes"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/keyway-go/keyway/gateway/internal/holds"
	"github.com/keyway-go/keyway/internal/holder"
)

func TestCodec(t *testing.T) {
	for _, r := range []holds.Request{
		{ID: holds.NewID()},
		{ID: holds.NewID(), Try: true},
		{ID: holds.NewID(), Shared: true},
		{ID: holds.NewID(), Firm: true, Lease: time.Hour},
		{ID: holds.NewID(), Lease: time.Second, Wait: time.Minute, Label: "größer als eins, host-7"},
		{ID: holds.NewID(), Turns: holds.MaxTurns - 1, Label: "x"},
		{ID: holds.NewID(), Call: 1<<64 - 1},
	} {
		if got, err := holds.ParseRequest(r.Append(nil)); got != r || err != nil {
			t.Errorf("%v became %v, %v", r, got, err)
		}
	}
	if _, err := holds.ParseRequest(holds.Request{Turns: holds.MaxTurns}.Append(nil)); err == nil {
		t.Error("a request for too many turns is taken")
	}
	for _, label := range []string{strings.Repeat("x", holds.MaxLabel+1), "a\nb", "\xff"} {
		if _, err := holds.ParseRequest(holds.Request{Label: label}.Append(nil)); err == nil {
			t.Errorf("label %q is taken", label)
		}
	}
	for _, g := range []holds.Grant{
		{Token: 1, Lease: 1},
		{Token: 1 << 62, Lease: 10 * time.Second, Promise: holder.Promise{Cancel: 8 * time.Second, Surrender: 9500 * time.Millisecond}},
		{Token: 7, Lease: 1, Turns: holds.MaxTurns - 1, Next: 9},
	} {
		if got, err := holds.ParseGrant(g.Append(nil)); got != g || err != nil {
			t.Errorf("%v became %v, %v", g, got, err)
		}
	}
	late := holds.Grant{Token: 1, Lease: 1, Promise: holder.Promise{Cancel: -1, Surrender: -1}}
	if got, err := holds.ParseGrant(late.Append(nil)); got != (holds.Grant{Token: 1, Lease: 1}) || err != nil {
		t.Errorf("a promise that is over became %v, %v", got, err)
	}
	if _, err := holds.ParseGrant(holds.Grant{Token: 1}.Append(nil)); err == nil {
		t.Error("a grant without a lease is taken")
	}
	for _, o := range []holds.Occupancy{
		{},
		{Waiting: 3},
		{Held: true, Token: 1 << 62},
		{Held: true, Lock: true, Token: 7, Left: time.Second, Label: "größer", Waiting: 1},
		{Held: true, Lock: true, Token: 7, Left: time.Second, Shared: 3},
	} {
		if got, err := holds.ParseOccupancy(o.Append(nil)); got != o || err != nil {
			t.Errorf("%v became %v, %v", o, got, err)
		}
	}
	if _, err := holds.ParseOccupancy(holds.Occupancy{Label: "a\nb"}.Append(nil)); err == nil {
		t.Error("an occupancy with a bad label is taken")
	}
	for _, g := range []holds.Grant{
		{Token: 7, Lease: 1, Turns: holds.MaxTurns, Next: 8},
		{Token: 7, Lease: 1, Turns: 1, Next: 7},
		{Token: 7, Lease: 1, Turns: 2, Next: math.MaxInt64},
	} {
		if _, err := holds.ParseGrant(g.Append(nil)); err == nil {
			t.Errorf("%+v is taken", g)
		}
	}
	refs := []holds.Ref{{ID: holds.NewID()}, {ID: holds.NewID(), Partition: 4095, Token: 1}, {Partition: 7}}
	if got, err := holds.ParseRefs(holds.AppendRefs(nil, refs), 4096); !reflect.DeepEqual(got, refs) || err != nil {
		t.Errorf("%v became %v, %v", refs, got, err)
	}
	if _, err := holds.ParseRefs(holds.AppendRefs(nil, refs), 4095); err == nil {
		t.Error("a partition of another ring is taken")
	}
	most := make([]holds.Ref, holds.MaxRefs)
	for i := range most {
		most[i].Partition, most[i].Token = 1<<31-1, math.MaxInt64
	}
	if b := holds.AppendRefs(nil, most); len(b) != holds.MaxBody {
		t.Errorf("the longest body has %d bytes, want %d", len(b), holds.MaxBody)
	} else if _, err := holds.ParseRefs(b, 1<<31); err != nil {
		t.Error(err)
	}
	if _, err := holds.ParseRefs(holds.AppendRefs(nil, append(most, holds.Ref{})), 1<<31); err == nil {
		t.Error("too many holds are taken")
	}
	renewal := holds.Answers{Promise: holder.Promise{Cancel: time.Second, Surrender: 2 * time.Second}, States: []holder.Answer{holder.Held, holder.Gone, holder.Elsewhere}}
	if got, err := holds.ParseAnswers(renewal.Append(nil), 3); !reflect.DeepEqual(got, renewal) || err != nil {
		t.Errorf("%v became %v, %v", renewal, got, err)
	}
	if _, err := holds.ParseAnswers(renewal.Append(nil), 2); err == nil {
		t.Error("a renewal of 3 holds is taken for one of 2")
	}
	if _, err := holds.ParseAnswers([]byte{0, 0, 4}, 1); err == nil {
		t.Error("an unknown state is taken")
	}
}

// FuzzParse sees that no parser panics, and that what one takes is written as it
// was read, but for numbers that are longer than they need to be.
func FuzzParse(f *testing.F) {
	f.Add(holds.Request{ID: holds.NewID()}.Append(nil), 0)
	f.Add(holds.Request{ID: holds.NewID(), Lease: 1, Wait: 300, Label: "x"}.Append(nil), 0)
	f.Add(holds.Request{ID: holds.NewID(), Turns: 63, Label: "x"}.Append(nil), 0)
	f.Add(holds.Grant{Token: 77, Lease: 9, Turns: 63, Next: 300}.Append(nil), 0)
	f.Add(holds.Grant{Token: 77, Lease: 9, Promise: holder.Promise{Cancel: 1, Surrender: 2}}.Append(nil), 0)
	f.Add(holds.Answers{States: []holder.Answer{holder.Held, holder.Elsewhere}}.Append(nil), 2)
	f.Add(holds.AppendRefs(nil, []holds.Ref{{Partition: 1}, {Partition: 300}}), 4096)
	f.Add(holds.Occupancy{Held: true, Lock: true, Token: 7, Left: 9, Label: "x", Waiting: 2}.Append(nil), 0)
	f.Add(bytes.Repeat([]byte{0xff}, 40), 1)
	f.Fuzz(func(t *testing.T, b []byte, n int) {
		if r, err := holds.ParseRequest(b); err == nil {
			if again, err := holds.ParseRequest(r.Append(nil)); again != r || err != nil || r.Lease < 0 || r.Wait < 0 || r.Turns < 0 || r.Turns >= holds.MaxTurns || len(r.Label) > holds.MaxLabel {
				t.Errorf("request %+v became %+v, %v", r, again, err)
			}
		}
		if refs, err := holds.ParseRefs(b, n); err == nil {
			if again, err := holds.ParseRefs(holds.AppendRefs(nil, refs), n); !reflect.DeepEqual(again, refs) || err != nil {
				t.Errorf("holds %v became %v, %v", refs, again, err)
			}
		}
		if g, err := holds.ParseGrant(b); err == nil {
			if again, err := holds.ParseGrant(g.Append(nil)); again != g || err != nil || g.Token <= 0 || g.Cancel < 0 || g.Surrender < 0 || g.Lease <= 0 ||
				(g.Turns == 0) != (g.Next == 0) || g.Turns > 0 && (g.Next <= g.Token || g.Next+int64(g.Turns) < 0) {
				t.Errorf("grant %+v became %+v, %v", g, again, err)
			}
		}
		if o, err := holds.ParseOccupancy(b); err == nil {
			if again, err := holds.ParseOccupancy(o.Append(nil)); again != o || err != nil || o.Token < 0 || o.Left < 0 || o.Waiting < 0 {
				t.Errorf("occupancy %+v became %+v, %v", o, again, err)
			}
		}
		if r, err := holds.ParseAnswers(b, n); err == nil {
			if again, err := holds.ParseAnswers(r.Append(nil), n); !reflect.DeepEqual(again, r) || err != nil || r.Cancel < 0 {
				t.Errorf("renewal %+v became %+v, %v", r, again, err)
			}
		}
	})
}
