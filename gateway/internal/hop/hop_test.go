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
		{"not-owner", "b1", "7", &link.RefusedError{Reason: link.NotOwner, Owner: "b1", Epoch: 7}},
		{"not-owner", "", "", unknown},
		{"not-owner", "b1", "", unknown},
		{"not-owner", "b1", "7x", unknown},
		{"not-owner", "b1", "9223372036854775808", unknown},
		{"unavailable", "b1", "7", &link.RefusedError{Reason: link.Unavailable}},
		{"busy", "b1", "7", nil}, // the client reads it
		{"", "b1", "7", nil},     // the app's own 421
	} {
		h := http.Header{}
		h.Set(headerRefused, tt.refused)
		h.Set(headerOwner, tt.owner)
		h.Set(gateway.HeaderEpoch, tt.epoch)
		got := ReadRefusal(h.Get)
		if (got == nil) != (tt.want == nil) || got != nil && *got != *tt.want {
			t.Errorf("%v: %v, want %v", h, got, tt.want)
		}
	}
}
