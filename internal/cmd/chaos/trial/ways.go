package trial

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

// Way is how a client uses a request: to its answer, or in one of the ways in
// which it leaves while it is worked on. The app goes on for a while then, as
// apps do, and writes its count: within the grace that a sidecar gives it.
type Way uint8

// The ways; Ways is how many there are.
const (
	toTheEnd    Way = iota
	upload          // a chunked body of more than 64 KiB that breaks off, over HTTP/1.1
	uploadH2        // the same over HTTP/2
	tunnel          // an upgraded connection that the client closes
	eventStream     // an answer without end that the client leaves
	Ways
)

func (w Way) String() string {
	return [...]string{"answered", "uploads that break off, HTTP/1.1", "uploads that break off, HTTP/2", "tunnels left by the client", "endless answers left by the client"}[w]
}

// ReachesNobody reports whether no app gets to see such a request: its body does not
// come to its end, and a router reads it first.
func (w Way) ReachesNobody() bool { return w == upload || w == uploadH2 }

const (
	uploadSize = 96 << 10 // more than a router keeps to send it again
	chunkSize  = 16 << 10
)

// errLeft is how a client's own leaving looks to its transport.
var errLeft = errors.New("left on purpose")

// leave sends a request in its way and leaves it after j.stay. The returned
// error says why it came to an end before that.
func (l *Load) leave(ctx context.Context, r *Request, j Job) error {
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
func (l *Load) dial(ctx context.Context, r *Request, head string) (net.Conn, error) {
	c, err := l.Dial(ctx)
	if err != nil {
		return nil, err
	}
	deadline, _ := ctx.Deadline()
	_ = c.SetDeadline(deadline)
	var b strings.Builder
	fmt.Fprintf(&b, "%sHost: %s\r\n", head, host)
	_ = r.header().Write(&b)
	b.WriteString("\r\n")
	if _, err := io.WriteString(c, b.String()); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

func (l *Load) leaveUpload(ctx context.Context, r *Request, j Job) error {
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

func (l *Load) leaveUploadH2(ctx context.Context, r *Request, j Job) error {
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

func (l *Load) leaveTunnel(ctx context.Context, r *Request, j Job) error {
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

func (l *Load) leaveEvents(ctx context.Context, r *Request, j Job) error {
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
func (r *Request) header() http.Header {
	return http.Header{
		HeaderKey:     {r.Key},
		headerRequest: {fmt.Sprint(r.Number)},
		headerWork:    {r.Work.String()},
		headerWay:     {fmt.Sprint(uint8(r.Way))},
		headerLimit:   {r.Limit.String()},
	}
}

// Used is what became of the requests of one way.
type Used struct {
	Sent, Executed int
	ended          map[int]int // by status: those that the client did not leave itself
}

// Usage counts the requests by their ways.
func Usage(requests []*Request, seen Record) (all [Ways]Used) {
	for _, r := range requests {
		u := &all[r.Way]
		u.Sent++
		if seen.Requests[r.Number] != nil {
			u.Executed++
		}
		if r.Way != toTheEnd && r.Status != 0 {
			if u.ended == nil {
				u.ended = make(map[int]int)
			}
			u.ended[r.Status]++
		}
	}
	return all
}

// Early lists the statuses of answers that came before the client left.
func (u Used) Early() string {
	if u.ended == nil {
		return ""
	}
	return ", answered before that: " + statuses(u.ended)
}
