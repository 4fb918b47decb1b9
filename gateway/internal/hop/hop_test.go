package hop

import (
	"net/http"
	"testing"

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/internal/wire/link"
)

func TestReadRefusal(t *testing.T) {
	unknown := &link.RefusedError{Reason: link.NotOwner}
	for _, tt := range []struct {
		refused, owner, epoch string
		want                  *link.RefusedError
	}{
		{RefusedNotOwner, "b1", "7", &link.RefusedError{Reason: link.NotOwner, Owner: "b1", Epoch: 7}},
		{RefusedNotOwner, "", "", unknown},
		{RefusedNotOwner, "b1", "", unknown},
		{RefusedNotOwner, "b1", "7x", unknown},
		{RefusedNotOwner, "b1", "9223372036854775808", unknown},
		{RefusedUnavailable, "b1", "7", &link.RefusedError{Reason: link.Unavailable}},
		{RefusedBusy, "b1", "7", nil}, // the client reads it
		{"", "b1", "7", nil},          // the app's own 421
	} {
		h := http.Header{}
		h.Set(HeaderRefused, tt.refused)
		h.Set(HeaderOwner, tt.owner)
		h.Set(gateway.HeaderEpoch, tt.epoch)
		got := ReadRefusal(h)
		if (got == nil) != (tt.want == nil) || got != nil && *got != *tt.want {
			t.Errorf("%v: %v, want %v", h, got, tt.want)
		}
	}
}
