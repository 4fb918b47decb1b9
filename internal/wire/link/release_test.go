package link

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
)

// TestReleasedAnswers: the memory of answers that are released is used again, and none
// of what belongs to one is ever seen in another.
func TestReleasedAnswers(t *testing.T) {
	c := serveTCP(t, HandlerFunc(func(w *ResponseWriter, r *ServerRequest) {
		w.WriteHead(200, -1, AppendField(nil, "Key", r.Key))
		for range 1 + len(r.Key)%3 {
			io.WriteString(w, r.Key)
			w.Flush()
		}
	}))
	var wg sync.WaitGroup
	for client := range 16 {
		wg.Go(func() {
			for i := range 300 {
				if err := releasedAnswer(t, c, client, i); err != nil {
					t.Errorf("client %d, request %d: %v", client, i, err)
					return
				}
			}
		})
	}
	wg.Wait()
}

// releasedAnswer does the i-th request of a client: some with a body that is not wanted,
// and some whose answer is given up.
func releasedAnswer(t *testing.T, c *Client, client, i int) error {
	key := fmt.Sprint("key ", client, " ", strings.Repeat("x", i))
	req := &Request{Method: "GET", Target: "/", Host: "h", Key: key}
	if i%5 == 0 {
		req = chunked(strings.NewReader(strings.Repeat("y", 200<<10)))
		req.Key = key
	}
	resp, err := c.Do(t.Context(), req)
	if err != nil {
		return err
	}
	if i%3 > 0 {
		b, err := io.ReadAll(resp.Body)
		if want := strings.Repeat(key, 1+len(key)%3); err != nil || string(b) != want {
			return fmt.Errorf("%d bytes, want %d, %v", len(b), len(want), err)
		}
		if _, err := resp.Body.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
			return fmt.Errorf("behind the end: %v", err)
		}
	}
	for name, value := range resp.Fields.All() {
		if name != "Key" || value != key {
			return fmt.Errorf("%s: %s, want %s", name, value, key)
		}
	}
	resp.Body.Close()
	<-req.BodyDone()
	resp.Release()
	return nil
}

// TestReleasedWhileItRuns: of an answer that was given up and released more may come,
// which no other request gets.
func TestReleasedWhileItRuns(t *testing.T) {
	ended, begun, leave := make(chan struct{}), make(chan struct{}), make(chan struct{})
	c := serveTCP(t, HandlerFunc(func(w *ResponseWriter, r *ServerRequest) {
		switch r.Target {
		case "/given-up":
			w.WriteHead(200, -1, nil)
			w.Flush()
			<-r.Context().Done()
			<-ended
		case "/next":
			begun <- struct{}{}
			<-leave
			text(w, "next")
		default:
			text(w, "")
		}
	}))
	get := func(target string) *Request { return &Request{Method: "GET", Target: target, Host: "h"} }
	for range 50 {
		resp, err := c.Do(t.Context(), get("/given-up"))
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		resp.Release()
		next := make(chan error, 1)
		go func() {
			got, err := fetch(t.Context(), c, get("/next"))
			if err == nil && got != "next" {
				err = fmt.Errorf("answered %q", got)
			}
			next <- err
		}()
		<-begun
		ended <- struct{}{}
		if _, err := fetch(t.Context(), c, get("/")); err != nil {
			t.Fatal(err)
		}
		leave <- struct{}{}
		if err := <-next; err != nil {
			t.Fatal(err)
		}
	}
}

// TestHeadBeforeNothing: the head of an answer is there when a part of the body without
// any bytes came with it.
func TestHeadBeforeNothing(t *testing.T) {
	near, far := net.Pipe()
	c := &Client{Dial: func(context.Context) (net.Conn, error) { return near, nil }}
	var server sync.WaitGroup
	server.Go(func() {
		peer := newFakePeer(far)
		peer.handshake(t)
		h, _ := peer.frame(t)
		head := responseHead{status: 200, length: -1}
		frames := appendFrame(nil, header{kind: kindResponse, stream: h.stream}, head.append(nil))
		peer.write(t, appendFrame(frames, header{kind: kindData, stream: h.stream}, nil))
	})
	resp, err := c.Do(t.Context(), &Request{Method: "GET", Target: "/", Host: "h"})
	if err != nil {
		t.Fatal(err)
	}
	if n, last := resp.Body.Buffered(); resp.Status != 200 || n > 0 || last {
		t.Errorf("status %d, %d bytes, last: %v", resp.Status, n, last)
	}
	c.Close()
	server.Wait()
}
