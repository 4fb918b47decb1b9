package conformance

import (
	"bufio"
	"bytes"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "write the table of testdata/odd-requests.md anew, with nginx and HAProxy beside")

// The table's place.
const (
	document   = "testdata/odd-requests.md"
	tableBegin = "<!-- table of odd requests: go -C gateway/conformance test -run Odd -update -->\n"
	tableEnd   = "<!-- end of the table -->\n"
)

// oddRequests are requests that servers differ about. Each ends its connection,
// if it is taken for what it says.
var oddRequests = []struct{ name, raw string }{
	{"a plain request", "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"},
	{"RFC 9112, 2.2: an empty line before it", "\r\nGET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"},
	{"2.2: lines that end in LF", "GET / HTTP/1.1\nHost: a\nConnection: close\n\n"},
	{"2.2: a bare CR in a value", "GET / HTTP/1.1\r\nHost: a\r\nX: a\rb\r\nConnection: close\r\n\r\n"},
	{"2.2: a space before the first field", "GET / HTTP/1.1\r\n Host: b\r\nHost: a\r\nConnection: close\r\n\r\n"},
	{"2.3: HTTP/1.2", "GET / HTTP/1.2\r\nHost: a\r\nConnection: close\r\n\r\n"},
	{"2.3: HTTP/2.0 without its preface", "GET / HTTP/2.0\r\nHost: a\r\nConnection: close\r\n\r\n"},
	{"2.3: http in lower case", "GET / http/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"},
	{"2.3: no version (HTTP/0.9)", "GET /\r\n\r\n"},
	{"2.3: HTTP/1.0 without Host", "GET / HTTP/1.0\r\n\r\n"},
	{"3: two spaces", "GET  / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"},
	{"3: a tab for a space", "GET\t/ HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"},
	{"3: a space in the target", "GET /a b HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"},
	{"3.1: a method of its own", "BREW /pot HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"},
	{"3.1: a method in lower case", "get / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"},
	{"3.1: a method that is no token", "G@T{} / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"},
	{"3.2.1: a control character in the target", "GET /\x01 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"},
	{"3.2.1: bytes above 127 in the target", "GET /\xc3\xa9 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"},
	{"3.2.1: a fragment in the target", "GET /a#b HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"},
	{"3.2.1: bad percent-encoding", "GET /%zz HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"},
	{"3.2.1: dot segments", "GET /a/../b HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"},
	{"3.2.1: two slashes", "GET //a HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"},
	{"3.2.1: a backslash", "GET /a\\b HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"},
	{"3.2.2: an absolute target", "GET http://b/x HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"},
	{"3.2.3: CONNECT", "CONNECT a:80 HTTP/1.1\r\nHost: a:80\r\nConnection: close\r\n\r\n"},
	{"3.2.4: OPTIONS *", "OPTIONS * HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"},
	{"3.2.4: GET *", "GET * HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"},
	{"3.2: no Host", "GET / HTTP/1.1\r\nConnection: close\r\n\r\n"},
	{"3.2: an empty Host", "GET / HTTP/1.1\r\nHost:\r\nConnection: close\r\n\r\n"},
	{"3.2: two Hosts", "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\nConnection: close\r\n\r\n"},
	{"3.2: two equal Hosts", "GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\nConnection: close\r\n\r\n"},
	{"3.2: a Host with a path", "GET / HTTP/1.1\r\nHost: a/b\r\nConnection: close\r\n\r\n"},
	{"5.1: a space before the colon", "GET / HTTP/1.1\r\nHost: a\r\nX : b\r\nConnection: close\r\n\r\n"},
	{"5.1: no colon", "GET / HTTP/1.1\r\nHost: a\r\nX\r\nConnection: close\r\n\r\n"},
	{"5.1: an empty name", "GET / HTTP/1.1\r\nHost: a\r\n: b\r\nConnection: close\r\n\r\n"},
	{"5.1: a name that is no token", "GET / HTTP/1.1\r\nHost: a\r\nX(y): b\r\nConnection: close\r\n\r\n"},
	{"5.2: a folded line", "GET / HTTP/1.1\r\nHost: a\r\nX: b\r\n c\r\nConnection: close\r\n\r\n"},
	{"5.5: NUL in a value", "GET / HTTP/1.1\r\nHost: a\r\nX: b\x00c\r\nConnection: close\r\n\r\n"},
	{"5.5: bytes above 127 in a value", "GET / HTTP/1.1\r\nHost: a\r\nX: \xe9\r\nConnection: close\r\n\r\n"},
	{"6.1: Transfer-Encoding and Content-Length", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"},
	{"6.1: Transfer-Encoding in HTTP/1.0", "POST / HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"},
	{"6.1: an unknown coding", "POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nTransfer-Encoding: zip\r\n\r\n0\r\n\r\n"},
	{"6.1: chunked is not the last coding", "POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nTransfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n"},
	{"6.1: chunked twice", "POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nTransfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n"},
	{"6.1: Chunked with a capital", "POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nTransfer-Encoding: Chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n"},
	{"6.1: a tab around chunked", "POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nTransfer-Encoding:\tchunked\t\r\n\r\n1\r\nx\r\n0\r\n\r\n"},
	{"6.1: a vertical tab before chunked", "POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nTransfer-Encoding: \vchunked\r\n\r\n1\r\nx\r\n0\r\n\r\n"},
	{"6.2: two lengths", "POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nxy"},
	{"6.2: two equal lengths", "POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\nx"},
	{"6.2: a list of equal lengths", "POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 1, 1\r\n\r\nx"},
	{"6.2: +1", "POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: +1\r\n\r\nx"},
	{"6.2: -1", "POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: -1\r\n\r\nx"},
	{"6.2: 0x1", "POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 0x1\r\n\r\nx"},
	{"6.2: an empty length", "POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length:\r\n\r\n"},
	{"6.2: a length of 20 digits", "POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 18446744073709551617\r\n\r\nx"},
	{"6.3: GET with a body", "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 1\r\n\r\nx"},
	{"7.1: chunks", "POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"},
	{"7.1: a size with zeros before it", "POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n0003\r\nabc\r\n0\r\n\r\n"},
	{"7.1: a size of 17 digits", "POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n10000000000000003\r\nabc\r\n0\r\n\r\n"},
	{"7.1: a size of 0x3", "POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n0x3\r\nabc\r\n0\r\n\r\n"},
	{"7.1: a chunk that is longer than its size", "POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabcd\r\n0\r\n\r\n"},
	{"7.1: chunk lines that end in LF", "POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n3\nabc\n0\n\n"},
	{"7.1.1: an extension", "POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n3;a=b\r\nabc\r\n0\r\n\r\n"},
	{"7.1.1: LF in an extension", "POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n3;a\nb\r\nabc\r\n0\r\n\r\n"},
	{"7.1.2: a trailer", "POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nX-T: v\r\n\r\n"},
	{"7.1.2: a trailer of framing", "POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nContent-Length: 9\r\n\r\n"},
	{"9.3: two requests in one packet", "GET /1 HTTP/1.1\r\nHost: a\r\n\r\nGET /2 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"},
	{"RFC 9110, 7.6.1: Connection names a field", "GET / HTTP/1.1\r\nHost: a\r\nX-Hop: 1\r\nConnection: close, X-Hop\r\n\r\n"},
	{"7.6.1: Connection names Host", "GET / HTTP/1.1\r\nHost: a\r\nConnection: close, Host\r\n\r\n"},
	{"7.8: Upgrade: h2c", "GET / HTTP/1.1\r\nHost: a\r\nConnection: close, Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAoAAAAAIAAAAA\r\n\r\n"},
	{"9.3.8: TRACE", "TRACE / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"},
	{"10.1.1: Expect of something else", "POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nExpect: 200-ok\r\nContent-Length: 1\r\n\r\nx"},
	{"10.1.4: TE with other codings", "GET / HTTP/1.1\r\nHost: a\r\nConnection: close, TE\r\nTE: trailers, deflate\r\n\r\n"},
}

// apps is the app behind all servers: it answers with what it got.
func apps(t *testing.T) string {
	app := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			panic(http.ErrAbortHandler)
		}
		var saw strings.Builder
		fmt.Fprintf(&saw, "%s %s", r.Method, r.RequestURI)
		if len(body) > 0 {
			fmt.Fprintf(&saw, " with %q", body)
		}
		for _, name := range []string{"X", "X-Hop", "Upgrade", "HTTP2-Settings", "TE"} {
			if v, ok := r.Header[http.CanonicalHeaderKey(name)]; ok {
				fmt.Fprintf(&saw, ", %s: %q", name, v)
			}
		}
		for name, v := range r.Trailer {
			fmt.Fprintf(&saw, ", trailer %s: %q", name, v)
		}
		w.Header().Set("X-Saw", saw.String())
	}))
	t.Cleanup(app.Close)
	return strings.TrimPrefix(app.URL, "http://")
}

// ask sends raw to a server and returns its answers in short.
func ask(t *testing.T, addr, raw string) string {
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(settled)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(conn, raw); err != nil {
		t.Fatal(err)
	}
	in := bufio.NewReader(conn)
	var answers []string
	for {
		if start, err := in.Peek(5); err == nil && string(start) != "HTTP/" { // of HTTP/0.9
			rest, _ := io.ReadAll(in)
			return strings.Join(append(answers, fmt.Sprintf("%d bytes without a head", len(rest))), "; ")
		}
		res, err := http.ReadResponse(in, nil)
		if err != nil {
			if len(answers) == 0 {
				return "closed"
			}
			return strings.Join(answers, "; ")
		}
		_, err = io.Copy(io.Discard, res.Body)
		text := fmt.Sprint(res.StatusCode)
		if saw := res.Header.Get("X-Saw"); saw != "" {
			text += " " + saw
		}
		if answers = append(answers, text); err != nil || res.Close {
			return strings.Join(answers, "; ")
		}
	}
}

// TestOddRequests compares what the router does with the odd requests with the
// table of testdata/odd-requests.md.
func TestOddRequests(t *testing.T) {
	t.Parallel()
	app := apps(t)
	router := newCluster(t, "http://"+app, "--key", "header:X-Key host").router
	names := []string{"router"}
	servers := []string{router}
	if *update {
		names = append(names, "nginx", "HAProxy")
		servers = append(servers, nginxBefore(t, app), haproxyBefore(t, app))
	}
	before, err := os.ReadFile(document)
	if err != nil {
		t.Fatal(err)
	}
	head, rest, ok := bytes.Cut(before, []byte(tableBegin))
	table, tail, ok2 := bytes.Cut(rest, []byte(tableEnd))
	if !ok || !ok2 {
		t.Fatalf("%s has no place for the table", document)
	}
	var rows strings.Builder
	fmt.Fprintf(&rows, "\n| request | %s |\n|---|%s\n", strings.Join(names, " | "), strings.Repeat("---|", len(names)))
	for _, odd := range oddRequests {
		cells := []string{odd.name}
		for _, addr := range servers {
			cells = append(cells, strings.ReplaceAll(ask(t, addr, odd.raw), "|", `\|`))
		}
		row := "| " + strings.Join(cells, " | ") + " |"
		fmt.Fprintln(&rows, row)
		if !*update && !bytes.Contains(table, []byte("\n"+row)) {
			t.Errorf("the table of %s says otherwise: %s", document, row)
		}
	}
	if *update {
		if err := os.WriteFile(document, []byte(string(head)+tableBegin+rows.String()+"\n"+tableEnd+string(tail)), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func nginxBefore(t *testing.T, app string) string {
	return startNginx(t, `upstream app { server `+app+`; keepalive 8; }
	server { listen LISTEN; location / { proxy_pass http://app; proxy_http_version 1.1; proxy_set_header Connection ""; proxy_set_header Host $http_host; } }`)
}

func haproxyBefore(t *testing.T, app string) string {
	t.Helper()
	haproxy, err := exec.LookPath("haproxy")
	if err != nil {
		t.Fatal("haproxy is missing: install it, on Debian: apt-get install haproxy")
	}
	addr := freeAddr(t)
	conf := filepath.Join(t.TempDir(), "haproxy.cfg")
	text := fmt.Sprintf("defaults\n mode http\n timeout client 10s\n timeout server 10s\n timeout connect 5s\nfrontend f\n bind %s\n default_backend b\nbackend b\n server app %s\n", addr, app)
	if err := os.WriteFile(conf, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(haproxy, "-f", conf)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
	})
	waitFor(t, addr)
	return addr
}

// waitFor waits until another project's server listens.
func waitFor(t *testing.T, addr string) {
	t.Helper()
	for end := time.Now().Add(settled); ; {
		conn, err := net.Dial("tcp", addr)
		if err == nil {
			conn.Close()
			return
		}
		if time.Now().After(end) {
			t.Fatalf("nobody listens at %s: %v", addr, err)
		}
		time.Sleep(10 * time.Millisecond) // it gives no other sign
	}
}
