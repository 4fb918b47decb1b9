// Package access says which requests an address of a process accepts: those with its token or,
// without one, those from the same machine.
package access

import (
	"crypto/subtle"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"github.com/keyway-go/keyway/internal/keysource"
)

// Verdict says whether a request is accepted, or why not.
type Verdict uint8

// Verdicts.
const (
	Granted   Verdict = iota
	NotHere           // it comes from another machine, and there is no token
	NoToken           // it lacks the token, or has another one
	OtherSite         // a page of another site has a browser send it
	OtherHost         // it is for a host that is not known as this process, and lacks the token
)

// AskByAddress says what to do about OtherHost.
const AskByAddress = "the request's Host is not known as this process: ask by an address of this machine, or list the name with --admin-host"

// Rules are those of one address of a process.
type Rules struct {
	Token string   // "" for none
	Hosts []string // names under which the process is asked, in addition to its addresses
}

// Of returns the verdict over a request. The request needs the header Authorization with Bearer and
// Token. If Token is empty, it must come from this machine, over a loopback address or a Unix
// socket.
func (c Rules) Of(r *http.Request) Verdict {
	switch {
	case isFromOtherSite(r):
		return OtherSite
	case c.Token == "" && !fromHere(r.RemoteAddr):
		return NotHere
	case c.Token != "" && !c.hasToken(r):
		return NoToken
	}
	return c.OfReading(r, false)
}

// OfReading returns the verdict over a request that changes nothing and needs no token. If it
// costs work, no page of another site may have it done.
func (c Rules) OfReading(r *http.Request, works bool) Verdict {
	switch {
	case works && isFromOtherSite(r):
		return OtherSite
	case !c.knows(r) && !c.hasToken(r):
		return OtherHost
	}
	return Granted
}

// isFromOtherSite reports whether a browser says that a page of another site sends the request. It
// applies to all methods.
func isFromOtherSite(r *http.Request) bool {
	asWrite := *r
	asWrite.Method = http.MethodPost
	return new(http.CrossOriginProtection).Check(&asWrite) != nil
}

func (c Rules) hasToken(r *http.Request) bool {
	given, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	return ok && c.Token != "" && subtle.ConstantTimeCompare([]byte(given), []byte(c.Token)) == 1
}

// knows reports whether a request is for a host that no page can make its own: a name that
// others own may resolve to this machine (DNS rebinding), and its pages pass for this site's.
func (c Rules) knows(r *http.Request) bool {
	if _, err := netip.ParseAddrPort(r.RemoteAddr); err != nil {
		return true // over a Unix socket, which no browser uses
	}
	host := strings.Trim(keysource.HostOf(r.Host), "[]")
	addr, _ := netip.ParseAddr(host)
	local, ok := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr)
	switch addr = addr.Unmap().WithZone(""); {
	case addr.IsLoopback(), ok && addr == local.AddrPort().Addr().Unmap().WithZone(""), strings.EqualFold(host, "localhost"):
		return true
	}
	return slices.ContainsFunc(c.Hosts, func(known string) bool { return strings.EqualFold(known, host) })
}

func fromHere(remote string) bool {
	addr, err := netip.ParseAddrPort(remote)
	return err != nil || addr.Addr().Unmap().IsLoopback()
}
