package client_test

import (
	"errors"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/internal/test/kit"
	"github.com/keyway-go/keyway/internal/test/site"
)

// A client that is closed accuses nobody any more: it would open a connection that nobody closes.
func TestNoAccusationsAfterClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := site.NewInBubble(t)
		began := make(chan struct{})
		s.App = http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			close(began)
			<-r.Context().Done()
		})
		dies, lives := s.StartServing(), s.StartServing()
		kit.Eventually(t, "both serve", func() bool {
			return dies.Serving() > 0 && lives.Serving() > 0 && dies.Serving()+lives.Serving() == site.Partitions
		})
		c := s.NewClient()
		r := kit.Must(http.NewRequestWithContext(t.Context(), http.MethodGet, "http://app/", nil))
		r.Header.Set(gateway.HeaderKey, s.KeyOf(dies, "k"))
		go func() {
			<-began
			s.Kill(dies)
		}()
		if _, err := c.RoundTrip(r); !errors.Is(err, gateway.ErrMayHaveRun) {
			t.Fatal(err)
		}
		c.Close()
		dials := s.Network.Dials.Load()
		time.Sleep(time.Minute)
		if n := s.Network.Dials.Load(); n != dials {
			t.Errorf("%d connections were made when the client was closed", n-dials)
		}
	})
}
