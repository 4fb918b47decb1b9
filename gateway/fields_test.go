package gateway_test

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
)

// cgiApp answers with what an app behind CGI, WSGI, Rack or PHP sees of the
// fields that it is asked for in the query: one variable per name in which - and
// _ and . are the same.
func cgiApp(rw http.ResponseWriter, r *http.Request) {
	env := make(map[string][]string)
	for _, name := range slices.Sorted(maps.Keys(r.Header)) {
		variable := strings.ToUpper(strings.NewReplacer("-", "_", ".", "_").Replace(name))
		env[variable] = append(env[variable], r.Header[name]...)
	}
	for name := range strings.SplitSeq(r.URL.Query().Get("see"), ",") {
		fmt.Fprintf(rw, "%s=%s ", name, strings.Join(env[name], ","))
	}
}

// A field that a CGI-like server takes for another one counts as that one.
func TestTrapUnderscoreIsHyphenToTheApp(t *testing.T) {
	lines := []string{
		"Keyway_Token: 9999999999999999999", "KEYWAY.TOKEN: 1", "keyway-token_: 1", "Keyway_Key: other", "keyway.key: other", "Keyway_Epoch: 1",
		"X_Key: other", "x.key: other", "Transfer_Encoding: chunked", "Content_Length: 99", "Proxy_Authorization: x", "Proxy.Connection: x",
		"X_Forwarded_For: 192.0.2.9", "X_Other: 1", "x.more: 2",
	}
	for _, e := range entrances(t, cgiApp, nil) {
		t.Run(e.name, func(t *testing.T) {
			const see = "/?see=KEYWAY_KEY,X_KEY,TRANSFER_ENCODING,PROXY_AUTHORIZATION,PROXY_CONNECTION,X_OTHER,X_MORE"
			const want = "KEYWAY_KEY=k X_KEY=k TRANSFER_ENCODING= PROXY_AUTHORIZATION= PROXY_CONNECTION= X_OTHER=1 X_MORE=2 "
			if got := e.send(t, "GET", see, lines, ""); !strings.Contains(got, want) {
				t.Errorf("the app sees %s", got)
			}
			for _, variable := range []string{"KEYWAY_TOKEN", "KEYWAY_EPOCH", "X_FORWARDED_FOR", "CONTENT_LENGTH", "KEYWAY_TOKEN_"} {
				got := e.send(t, "GET", "/?see="+variable, lines, "")
				_, value, seen := strings.Cut(got, variable+"=")
				value, _, _ = strings.Cut(value, " ")
				if !seen || strings.Contains(value, ",") || slices.Contains([]string{"1", "9999999999999999999", "99", "192.0.2.9"}, value) {
					t.Errorf("the app sees %s", got)
				}
			}
		})
	}
}

// What the client's Connection names is what the client has sent, not what the
// app is told.
func TestConnectionDoesNotNameWhatTheAppIsTold(t *testing.T) {
	for _, e := range entrances(t, cgiApp, nil) {
		if e.http2 || strings.HasPrefix(e.name, "router alone") {
			continue // has no Connection, or no worker
		}
		t.Run(e.name, func(t *testing.T) {
			lines := []string{"Connection: Keyway-Token, keyway-key, Keyway-Epoch, Keyway-Partition, Baggage, X-Hop", "X-Hop: 1", "Baggage: tenant=7"}
			for _, name := range []string{"KEYWAY_TOKEN", "KEYWAY_KEY", "KEYWAY_EPOCH", "KEYWAY_PARTITION", "BAGGAGE"} {
				if got := e.send(t, "GET", "/?see="+name, lines, ""); strings.Contains(got, name+"= ") || !strings.Contains(got, name+"=") {
					t.Errorf("the app sees %s", got)
				}
			}
			if got := e.send(t, "GET", "/?see=X_HOP,CONNECTION", lines, ""); !strings.Contains(got, "X_HOP= CONNECTION= ") {
				t.Errorf("the app sees %s", got)
			}
		})
	}
}
