package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"
)

// way is how a client uses a request: to its answer, or in one of the ways in
// which it leaves while it is worked on. The app goes on for a while then, as
// apps do, and writes its count: within the grace that a sidecar gives it.
type way uint8

const (
	toTheEnd    way = iota
	upload          // a chunked body of more than 64 KiB that breaks off, over HTTP/1.1
	uploadH2        // the same over HTTP/2
	tunnel          // an upgraded connection that the client closes
	eventStream     // an answer without end that the client leaves
	ways
)

func (w way) String() string {
	return [...]string{"answered", "uploads that break off, HTTP/1.1", "uploads that break off, HTTP/2", "tunnels left by the client", "endless answers left by the client"}[w]
}

// reachesNobody reports whether no app gets to see such a request: its body does not
// come to its end, and a router reads it first.
func (w way) reachesNobody() bool { return w == upload || w == uploadH2 }

const (
	uploadSize = 96 << 10 // more than a router keeps to send it again
	chunkSize  = 16 << 10
)

// errLeft is how a client's own leaving looks to its transport.
var errLeft = errors.New("left on purpose")

// leave sends a request in its way and leaves it after j.stay. The returned
// error says why it came to an end before that.
func (l *load) leave(ctx context.Context, r *request, j job) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	switch r.Way {
	case upload:
		return l.leaveUpload(ctx, r, j)
	case uploadH2:
		return l.leaveUploadH2(ctx, r, j)
	case tunnel:
		return l.leaveTunnel(ctx, r, j)
	}
	return l.leaveEvents(ctx, r, j)
}

// dial sends the head of a request of a kind that net/http does not send.
func (l *load) dial(ctx context.Context, r *request, head string) (net.Conn, error) {
	var d net.Dialer
	c, err := d.DialContext(ctx, "tcp", l.target)
	if err != nil {
		return nil, err
	}
	deadline, _ := ctx.Deadline()
	_ = c.SetDeadline(deadline)
	var b strings.Builder
	fmt.Fprintf(&b, "%sHost: %s\r\n", head, l.target)
	_ = r.header().Write(&b)
	b.WriteString("\r\n")
	if _, err := io.WriteString(c, b.String()); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

func (l *load) leaveUpload(ctx context.Context, r *request, j job) error {
	c, err := l.dial(ctx, r, "POST /count HTTP/1.1\r\nTransfer-Encoding: chunked\r\n")
	if err != nil {
		return err
	}
	defer c.Close()
	if r.Number%2 == 0 {
		_ = c.(*net.TCPConn).SetLinger(0) // it leaves with a reset
	}
	timer := time.AfterFunc(j.stay, func() { c.Close() }) // also while the router does not read
	defer timer.Stop()
	chunk := fmt.Sprintf("%x\r\n%s\r\n", chunkSize, strings.Repeat("u", chunkSize))
	for range uploadSize / chunkSize {
		if _, err := io.WriteString(c, chunk); err != nil {
			return leftOr(err)
		}
	}
	_, err = io.Copy(io.Discard, c) // an answer, if one comes before the client leaves
	return leftOr(err)
}

// leftOr returns nil if it was the client itself that broke off.
func leftOr(err error) error {
	if errors.Is(err, net.ErrClosed) || errors.Is(err, errLeft) {
		return nil
	}
	return err
}

func (l *load) leaveUploadH2(ctx context.Context, r *request, j job) error {
	body, rest := io.Pipe()
	defer body.Close()
	timer := time.AfterFunc(j.stay, func() { rest.CloseWithError(errLeft) })
	defer timer.Stop()
	go func() {
		chunk := strings.Repeat("u", chunkSize)
		for range uploadSize / chunkSize {
			if _, err := io.WriteString(rest, chunk); err != nil {
				return
			}
		}
	}()
	req, err := l.newRequest(ctx, r, http.MethodPost, body)
	if err != nil {
		return err
	}
	res, err := l.h2.Do(req)
	if err == nil {
		err = r.read(res)
	}
	return leftOr(err)
}

func (l *load) leaveTunnel(ctx context.Context, r *request, j job) error {
	c, err := l.dial(ctx, r, "GET /count HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n")
	if err != nil {
		return err
	}
	defer c.Close()
	in := bufio.NewReader(c)
	res, err := http.ReadResponse(in, nil)
	if err != nil {
		return err
	}
	if res.StatusCode != http.StatusSwitchingProtocols {
		return r.read(res)
	}
	until := time.Now().Add(j.stay)
	for time.Now().Before(until) {
		if _, err := io.WriteString(c, "ping\n"); err != nil {
			return err
		}
		if _, err := in.ReadString('\n'); err != nil {
			return err
		}
	}
	return nil
}

func (l *load) leaveEvents(ctx context.Context, r *request, j job) error {
	req, err := l.newRequest(ctx, r, http.MethodGet, nil)
	if err != nil {
		return err
	}
	client := l.http
	if r.Number%2 == 0 {
		client = l.h2
	}
	res, err := client.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close() // before its end, which ends an HTTP/2 stream or the connection
	if res.StatusCode != http.StatusOK {
		return r.read(res)
	}
	until := time.Now().Add(j.stay)
	for in := bufio.NewReader(res.Body); time.Now().Before(until); {
		if _, err := in.ReadString('\n'); err != nil {
			return err
		}
	}
	return nil
}

// header returns what tells the app about the request.
func (r *request) header() http.Header {
	return http.Header{
		headerKey:     {r.Key},
		headerRequest: {fmt.Sprint(r.Number)},
		headerWork:    {r.Work.String()},
		headerWay:     {fmt.Sprint(uint8(r.Way))},
		headerLimit:   {r.Limit.String()},
	}
}

// used is what became of the requests of one way.
type used struct {
	sent, executed int
	ended          map[string]int // how those came to an end that the client did not leave itself
}

// usage counts the requests by their ways.
func usage(requests []*request, seen record) (all [ways]used) {
	for _, r := range requests {
		u := &all[r.Way]
		u.sent++
		if seen.requests[r.Number] != nil {
			u.executed++
		}
		if r.Way != toTheEnd && r.Status != 0 {
			if u.ended == nil {
				u.ended = make(map[string]int)
			}
			u.ended[fmt.Sprint(r.Status)]++
		}
	}
	return all
}

// early lists the statuses of answers that came before the client left.
func (u used) early() string {
	var list []string
	for _, status := range sortedKeys(u.ended) {
		list = append(list, fmt.Sprintf("%d × %s", u.ended[status], status))
	}
	if list == nil {
		return ""
	}
	return ", answered before that: " + strings.Join(list, ", ")
}
