// Package access says who may have something done at an address of a process: whoever has its
// token, or without one whoever is on the same machine.
package access

import (
	"crypto/subtle"
	"net/http"
	"net/netip"
	"strings"
)

// Verdict says whether a request may go on, or why not.
type Verdict uint8

// Verdicts.
const (
	Granted   Verdict = iota
	NotHere           // it comes from another machine, and there is no token
	NoToken           // it lacks the token, or has another one
	OtherSite         // a page of another site has a browser send it
)

// Of returns the verdict over a request. It needs the header Authorization with Bearer and the
// token; if that is "" it needs to come from this machine, over a loopback address or a Unix socket.
func Of(r *http.Request, token string) Verdict {
	given, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	switch {
	case new(http.CrossOriginProtection).Check(r) != nil:
		return OtherSite
	case token == "" && !fromHere(r.RemoteAddr):
		return NotHere
	case token != "" && (!ok || subtle.ConstantTimeCompare([]byte(given), []byte(token)) == 0):
		return NoToken
	}
	return Granted
}

// fromHere reports whether a client's address is of loopback, or of a Unix socket.
func fromHere(remote string) bool {
	addr, err := netip.ParseAddrPort(remote)
	return err != nil || addr.Addr().Unmap().IsLoopback()
}
