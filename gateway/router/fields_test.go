package router_test

import (
	"bufio"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/keyway-go/keyway/gateway/router"
	"github.com/keyway-go/keyway/gateway/worker"
	"github.com/keyway-go/keyway/internal/test/kit"
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

// What proxies say of the client counts only if they are trusted.
func TestForwardingFieldsOfStrangersAreReplaced(t *testing.T) {
	lines := []string{"X-Forwarded-For: 192.0.2.1", "x-forwarded-for: 192.0.2.2", "X-Forwarded-Proto: https", "X-Forwarded-Host: bank.example",
		"Forwarded: for=192.0.2.1", "X-Forwarded-Port: 443", "X-Real-IP: 192.0.2.1"}
	const own = "X_FORWARDED_FOR=127.0.0.1 X_FORWARDED_PROTO=http X_FORWARDED_HOST=shop.example FORWARDED=for=127.0.0.1;host=shop.example;proto=http X_FORWARDED_PORT= X_REAL_IP= "
	const appended = "X_FORWARDED_FOR=192.0.2.1, 192.0.2.2, 127.0.0.1 X_FORWARDED_PROTO=https, http X_FORWARDED_HOST=bank.example, shop.example " +
		"FORWARDED=for=192.0.2.1, for=127.0.0.1;host=shop.example;proto=http X_FORWARDED_PORT=443 X_REAL_IP=192.0.2.1 "
	for _, tt := range []struct {
		trusted []string
		want    string
	}{
		{nil, own},
		{[]string{"10.0.0.0/8", "::1/128"}, own},
		{[]string{"10.0.0.0/8", "127.0.0.0/8"}, appended},
	} {
		for _, e := range entrances(t, cgiApp, func(rt *router.Config, _ *worker.Config) {
			for _, p := range tt.trusted {
				rt.TrustedProxies = append(rt.TrustedProxies, netip.MustParsePrefix(p))
			}
		}) {
			if strings.Contains(e.name, "own port") {
				continue // for routers, which are trusted
			}
			t.Run(fmt.Sprint(tt.trusted, e.name), func(t *testing.T) {
				const see = "/?see=X_FORWARDED_FOR,X_FORWARDED_PROTO,X_FORWARDED_HOST,FORWARDED,X_FORWARDED_PORT,X_REAL_IP"
				answers := []string{e.send(t, "GET", see, lines, "")}
				if !e.http2 {
					answers = append(answers, e.send(t, "POST", see, append([]string{"Transfer-Encoding: chunked"}, lines...), "4\r\nbody\r\n0\r\n\r\n"))
				}
				for _, got := range answers {
					if !strings.Contains(got, tt.want) {
						t.Errorf("the app sees %s", got)
					}
				}
			})
		}
	}
}

// What no app is to get is refused alike on every way.
func TestRefusedForms(t *testing.T) {
	app := func(rw http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(rw, "the app got %s %s", r.Method, r.RequestURI)
	}
	for _, e := range entrances(t, app, nil) {
		t.Run(e.name, func(t *testing.T) {
			for _, tt := range []struct{ method, target, want string }{
				{"TRACE", "/", "405"},
				{"GET", "*", "400"},
				{"GET", "h:80", "400"},
				{"GET", "http://h", "400"},
				{"POST", "h:80", "400"},
				{"OPTIONS", "*", "200"},
				{"OPTIONS", "/", "200"},
			} {
				got := e.send(t, tt.method, tt.target, nil, "")
				if e.http2 && tt.want == "400" { // RFC 9113, section 8.3.1
					tt.want = "reset 1"
				}
				if !strings.HasPrefix(strings.TrimPrefix(got, ":status: "), tt.want) && !strings.Contains(got, "\n:status: "+tt.want) || strings.Contains(got, "got TRACE") {
					t.Errorf("%s %s: %s, want %s", tt.method, tt.target, got, tt.want)
				}
			}
		})
	}
}

// Old clients send an empty line after a body (RFC 9112, section 2.2).
func TestFrontTakesOneEmptyLineBeforeARequest(t *testing.T) {
	rt, _ := throughLink(t, echo)
	base, _ := frontOf(t, rt)
	const get = "GET / HTTP/1.1\r\nHost: h\r\nX-Key: k\r\n\r\n"
	for sent, want := range map[string]string{
		"\r\n" + get:     "200",
		"\r\n\r\n" + get: "400",
		"\n" + get:       "400",
		"\r\n" + "GET * HTTP/1.1\r\nHost: h\r\n\r\n":                                                "400",
		"\r\nPOST / HTTP/1.1\r\nHost: h\r\nX-Key: k\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n": "200",
	} {
		if got := sendRaw(t, base, sent); !strings.HasPrefix(got, want) {
			t.Errorf("%q: %.200s, want %s", sent, got, want)
		}
	}
	conn := kit.Must(kit.Connect(base))
	defer conn.Close()
	in := bufio.NewReader(conn)
	for range 3 {
		for _, b := range []byte("POST / HTTP/1.1\r\nHost: h\r\nX-Key: k\r\nContent-Length: 1\r\n\r\nx\r\n") {
			conn.Write([]byte{b})
		}
		res, err := http.ReadResponse(in, nil)
		if err != nil || res.StatusCode != http.StatusOK {
			t.Fatalf("%v, %v", res, err)
		}
		io.Copy(io.Discard, res.Body)
	}
}
