package keyway

import (
	"fmt"
	"net/http"
	"sync/atomic"
)

// adminPages answers at Config.Admin from when that is open, as it was told last.
type adminPages struct{ current atomic.Pointer[http.Handler] }

func (a *adminPages) set(pages http.Handler) { a.current.Store(&pages) }

func (a *adminPages) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	(*a.current.Load()).ServeHTTP(rw, r)
}

// waitsFor answers that the process lives, and what its start waits for.
type waitsFor string

func (w waitsFor) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/healthz" {
		fmt.Fprintln(rw, "ok")
		return
	}
	rw.Header().Set("Retry-After", "1")
	http.Error(rw, "not ready: the node starts, and waits for "+string(w), http.StatusServiceUnavailable)
}
