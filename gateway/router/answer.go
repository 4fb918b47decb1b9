package router

import (
	"io"
	"net/http"
	"sync"

	"github.com/keyway-go/keyway/gateway/internal/fields"
	"github.com/keyway-go/keyway/gateway/internal/send"
	"github.com/keyway-go/keyway/internal/wire/http1"
	"github.com/keyway-go/keyway/internal/wire/link"
)

// answer is the answer for a client: a worker's, over any way, or the router's own.
type answer struct {
	send.Answer // without a body if it is the router's own

	failure string // in place of body
	close   bool   // the rest of the request's body will not be read
}

// downstream is the client's side of a request, which writes answers. One goroutine calls its
// methods.
type downstream interface {
	// start begins a head, which field adds to and interim or head sends.
	start(status int)
	field(name, value string)
	interim()
	head(f http1.Framing)
	// write takes more of the body, with what stood before it, and sends that all
	// if it is the end. flush sends what write has taken.
	write(piece []byte, end bool) error
	flush() error
	// endAnswer ends the body with trailers.
	endAnswer(trailer link.Fields) error
	// abort ends an answer so that the client does not take it for the whole.
	abort()
	// wait lets the client take its time with the body, and endBody waits until nothing reads it.
	wait()
	endBody()
	send.Carrier
}

// addFields adds to a head what the client may see of an answer's fields.
func addFields(c downstream, list link.Fields) (dated bool) {
	for name, value := range list.All() {
		name = http.CanonicalHeaderKey(name)
		if value, ok := fields.ToClient(name, value); ok {
			c.field(name, value)
			dated = dated || name == "Date"
		}
	}
	return dated
}

// reply passes the answer on to the client.
func (x *upstreamRequest) reply(a *answer) {
	c := x.client
	x.Answer = a.Answer
	if a.Status == send.StatusClientGone {
		c.abort()
		return
	}
	c.start(a.Status)
	if dated := addFields(c, a.Fields); !dated && x.source.server != nil {
		c.field("Date", x.source.server.dateText())
	}
	framing := http1.Framing{Method: x.Request.Method, Status: a.Status, Length: a.Length, Close: a.close}
	c.head(framing)
	if err := a.copyBody(c, framing); err != nil {
		c.abort()
	}
}

// copyBody sends the answer's body to the client, up to the declared length. It flushes
// all that has arrived before it waits for more.
func (a *answer) copyBody(c downstream, f http1.Framing) error {
	has, chunked := f.Body()
	body, left := a.Body, a.Length
	switch {
	case !has:
		return c.write(nil, true)
	case body == nil:
		return c.write([]byte(a.failure), true)
	}
	for {
		if n, last := body.Buffered(); n == 0 && !last {
			if err := c.flush(); err != nil {
				return err
			}
		}
		piece, err := body.Next()
		if err != nil && err != io.EOF {
			return err
		}
		if !chunked && int64(len(piece)) > left { // the rest would be taken for another answer
			_ = c.write(piece[:left], false)
			_ = c.flush() // it fails in any case
			return send.ErrLength
		}
		left -= int64(len(piece))
		n, last := body.Buffered()
		last = last && n == 0
		var trailer link.Fields
		if last {
			trailer = send.PublicTrailer(body.Trailer())
		}
		if err := c.write(piece, last && len(trailer) == 0 && (chunked || left == 0)); err != nil {
			return err
		}
		switch {
		case !last:
		case left > 0 && !chunked: // the client must see that there should be more
			return send.ErrLength
		case len(trailer) > 0:
			return c.endAnswer(trailer)
		default:
			return nil
		}
	}
}

// carrier interrupts what carries a request when its client leaves.
type carrier struct {
	mu      sync.Mutex // guards what follows
	carries send.Interruptible
	gone    bool // the client has left
}

func (c *carrier) Carry(e send.Interruptible) (watched bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.carries = e
	if e != nil && c.gone {
		e.Interrupt()
	}
	return true
}

func (c *carrier) interrupt() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.gone = true
	if c.carries != nil {
		c.carries.Interrupt()
	}
}
