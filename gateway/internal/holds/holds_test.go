package holds_test

import (
	"bytes"
	"reflect"
	"testing"
	"time"

	"github.com/keyway-go/keyway/gateway/internal/holds"
)

func TestCodec(t *testing.T) {
	for _, try := range []bool{false, true} {
		r := holds.Request{ID: holds.NewID(), Try: try}
		if got, err := holds.ParseRequest(r.Append(nil)); got != r || err != nil {
			t.Errorf("%v became %v, %v", r, got, err)
		}
	}
	for _, g := range []holds.Grant{
		{Token: 1},
		{Token: 1 << 62, Promise: holds.Promise{Cancel: 8 * time.Second, Surrender: 9500 * time.Millisecond}},
	} {
		if got, err := holds.ParseGrant(g.Append(nil)); got != g || err != nil {
			t.Errorf("%v became %v, %v", g, got, err)
		}
	}
	late := holds.Grant{Token: 1, Promise: holds.Promise{Cancel: -1, Surrender: -1}}
	if got, err := holds.ParseGrant(late.Append(nil)); got != (holds.Grant{Token: 1}) || err != nil {
		t.Errorf("a promise that is over became %v, %v", got, err)
	}
	ids := []holds.ID{holds.NewID(), holds.NewID(), {}}
	if got, err := holds.ParseIDs(holds.AppendIDs(nil, ids)); !reflect.DeepEqual(got, ids) || err != nil {
		t.Errorf("%v became %v, %v", ids, got, err)
	}
	renewal := holds.Renewal{Promise: holds.Promise{Cancel: time.Second, Surrender: 2 * time.Second}, Held: []bool{true, false, true}}
	if got, err := holds.ParseRenewal(renewal.Append(nil), 3); !reflect.DeepEqual(got, renewal) || err != nil {
		t.Errorf("%v became %v, %v", renewal, got, err)
	}
	if _, err := holds.ParseRenewal(renewal.Append(nil), 2); err == nil {
		t.Error("a renewal of 3 holds is taken for one of 2")
	}
	if _, err := holds.ParseIDs(make([]byte, holds.MaxBody+16)); err == nil {
		t.Error("too many holds are taken")
	}
}

// FuzzParse sees that no parser panics, and that what one takes is written as it
// was read, but for numbers that are longer than they need to be.
func FuzzParse(f *testing.F) {
	f.Add(holds.Request{ID: holds.NewID()}.Append(nil), 0)
	f.Add(holds.Grant{Token: 77, Promise: holds.Promise{Cancel: 1, Surrender: 2}}.Append(nil), 0)
	f.Add(holds.Renewal{Held: []bool{true, false}}.Append(nil), 2)
	f.Add(bytes.Repeat([]byte{0xff}, 40), 1)
	f.Fuzz(func(t *testing.T, b []byte, n int) {
		if r, err := holds.ParseRequest(b); err == nil && !bytes.Equal(r.Append(nil), b) {
			t.Errorf("request %x became %x", b, r.Append(nil))
		}
		if ids, err := holds.ParseIDs(b); err == nil && !bytes.Equal(holds.AppendIDs(nil, ids), b) {
			t.Errorf("holds %x became %x", b, holds.AppendIDs(nil, ids))
		}
		if g, err := holds.ParseGrant(b); err == nil {
			if again, err := holds.ParseGrant(g.Append(nil)); again != g || err != nil || g.Token <= 0 || g.Cancel < 0 || g.Surrender < 0 {
				t.Errorf("grant %+v became %+v, %v", g, again, err)
			}
		}
		if r, err := holds.ParseRenewal(b, n); err == nil {
			if again, err := holds.ParseRenewal(r.Append(nil), n); !reflect.DeepEqual(again, r) || err != nil || r.Cancel < 0 {
				t.Errorf("renewal %+v became %+v, %v", r, again, err)
			}
		}
	})
}
