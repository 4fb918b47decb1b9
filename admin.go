package keyway

import (
	"fmt"
	"net/http"
	"sync/atomic"
)

// adminPages answers at Config.Admin from when that is open: until it has pages, that
// the process lives, and what its start waits for.
type adminPages struct {
	pages atomic.Pointer[http.Handler]
	waits atomic.Pointer[string]
}

func (a *adminPages) waitsFor(what string) { a.waits.Store(&what) }

func (a *adminPages) set(pages http.Handler) { a.pages.Store(&pages) }

func (a *adminPages) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	if pages := a.pages.Load(); pages != nil {
		(*pages).ServeHTTP(rw, r)
		return
	}
	if r.URL.Path == "/healthz" {
		fmt.Fprintln(rw, "ok")
		return
	}
	rw.Header().Set("Retry-After", "1")
	http.Error(rw, "not ready: the node starts, and waits for "+*a.waits.Load(), http.StatusServiceUnavailable)
}
