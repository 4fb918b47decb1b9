package h2

import (
	"runtime"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/net/http2/hpack"

	"github.com/keyway-go/keyway/internal/wire/netutil"
)

const (
	outSize   = 16 << 10  // of a new buffer
	keptSize  = 128 << 10 // up to which a buffer is used again
	highWater = 256 << 10 // answers wait while more than this is queued
	hardLimit = 1 << 20   // the client does not read what it has asked for
	writeSize = 256 << 10 // largest single write, so that progress can be seen
)

var outPool = sync.Pool{New: func() any { b := make([]byte, 0, outSize); return &b }}

// output holds the frames to send, guarded by Conn.mu. A goroutine writes while writing is set;
// shut is final.
type output struct {
	buf     []byte
	pooled  *[]byte // that buf came from
	writing bool    // a goroutine writes
	since   int64   // tick at which its write last made progress, plus 1; 0 while there is none
	wrote   int64   // tick at which the client last took something
	shut    bool    // the end has been sent
	blocked int     // streams that wait for room, or for credit
	woken   int     // how many ever were, of those

	encoder *hpack.Encoder
	known   map[string]Field // as it was last, by name
}

// Write implements [io.Writer] for the encoder.
func (o *output) Write(p []byte) (int, error) {
	o.buf = append(o.buf, p...)
	return len(p), nil
}

func (o *output) borrow() {
	if o.buf == nil {
		o.pooled = outPool.Get().(*[]byte)
		o.buf = (*o.pooled)[:0]
	}
}

// controlLocked queues frames that cannot wait. A client that makes this side
// queue without bound is cut off.
func (c *Conn) controlLocked(frames []byte) {
	if c.done || c.leaving == lingering {
		return
	}
	c.out.borrow()
	c.out.buf = append(c.out.buf, frames...)
	if len(c.out.buf) > hardLimit {
		c.done = true
		c.Close()
	}
	c.startLocked()
}

// startLocked starts the goroutine that writes, unless it runs.
func (c *Conn) startLocked() {
	if !c.out.writing {
		c.out.writing = true
		go c.flush()
	}
}

// flush writes until nothing is left. Before each write it yields to the other goroutines, so that
// goroutines about to queue a frame do so first.
func (c *Conn) flush() {
	var err error
	for {
		runtime.Gosched()
		c.mu.Lock()
		if err != nil {
			c.done = true
		}
		b, pooled := c.out.buf, c.out.pooled
		c.out.buf, c.out.pooled = nil, nil
		if c.done || len(b) == 0 {
			if c.done || c.leaving != lingering || c.out.shut {
				c.out.writing = false
				c.unblockLocked()
				c.rest.Broadcast()
				c.mu.Unlock()
				return
			}
			c.out.shut = true
			c.mu.Unlock()
			if netutil.CloseWrite(c.nc) != nil {
				c.Close()
			}
			continue
		}
		c.out.since = c.tick.Load() + 1
		c.unblockLocked()
		c.mu.Unlock()
		if err = c.write(b); err != nil {
			c.Close()
		}
		if cap(b) <= keptSize {
			*pooled = b[:0]
			outPool.Put(pooled)
		}
	}
}

// write writes b in pieces.
func (c *Conn) write(b []byte) (err error) {
	for len(b) > 0 && err == nil {
		n := min(len(b), writeSize)
		if c.sock != nil {
			n, err = c.sock.WriteSome(b[:n])
		} else {
			n, err = c.nc.Write(b[:n])
		}
		b = b[n:]
		c.mu.Lock()
		c.out.wrote = c.tick.Load()
		c.out.since = c.out.wrote + 1
		if len(b) == 0 {
			c.out.since = 0
		}
		c.mu.Unlock()
	}
	return err
}

func (c *Conn) stuckLocked(now int64) bool {
	patience := int64(c.srv.ClientTicks)
	return patience > 0 && c.out.since != 0 && now-c.out.since >= patience
}

// unblockLocked wakes the waiting streams that now have room or credit. It wakes no more streams
// than the connection's credit suffices for. A stream that does not use its credit up calls it
// again.
func (c *Conn) unblockLocked() {
	if c.out.blocked == 0 || len(c.out.buf) > highWater {
		return
	}
	credit := c.credit
	for _, st := range c.streams {
		switch {
		case st.sending == 0:
			continue
		case st.wants == 0:
		case st.credit <= 0 || credit <= 0:
			continue
		default:
			credit -= min(st.credit, st.wants)
		}
		c.out.woken++
		st.wakeLocked()
	}
}

// fieldsLocked queues a list of fields: HEADERS, and CONTINUATION if it is
// long.
func (c *Conn) fieldsLocked(stream uint32, status int, fieldsLocked []Field, end bool) {
	o := &c.out
	o.borrow()
	start := len(o.buf)
	f := frame{kind: frameHeaders, stream: stream, flags: flagEndHeaders}
	if end {
		f.flags |= flagEndStream
	}
	o.buf = appendFrame(o.buf, f)
	if status != 0 {
		_ = o.encoder.WriteField(Field{Name: ":status", Value: statusText(status)})
	}
	for i := range fieldsLocked {
		o.field(&fieldsLocked[i])
	}
	f.length = len(o.buf) - start - frameHeaderLen
	if f.length > maxFrame {
		block := append([]byte(nil), o.buf[start+frameHeaderLen:]...)
		o.buf = appendBlock(o.buf[:start], f, block)
		return
	}
	appendFrame(o.buf[:start], f)
}

// statusText returns a status as text, which for most takes no memory.
func statusText(status int) string {
	switch status {
	case 200:
		return "200"
	case 204:
		return "204"
	case 304:
		return "304"
	}
	return strconv.Itoa(status)
}

// appendBlock appends a block of fields that does not fit in one frame.
func appendBlock(b []byte, f frame, block []byte) []byte {
	f.flags &^= flagEndHeaders
	for len(block) > 0 {
		piece := block[:min(len(block), maxFrame)]
		block = block[len(piece):]
		f.length = len(piece)
		if len(block) == 0 {
			f.flags |= flagEndHeaders
		}
		b = append(appendFrame(b, f), piece...)
		f.kind, f.flags = frameContinuation, 0
	}
	return b
}

// Bounds of output.known.
const (
	maxKnown      = 64
	maxKnownValue = 1 << 10
)

// field encodes a field. Only a field with the same value as the last one of its name enters the
// table: other fields would push these out.
func (o *output) field(f *Field) {
	last, known := o.known[f.Name]
	switch {
	case known && last.Value == f.Value && f.Name != "set-cookie":
		_ = o.encoder.WriteField(last) // which the table keeps, unlike f
		return
	case len(f.Value) > maxKnownValue, !known && len(o.known) >= maxKnown:
	case known:
		last.Value = strings.Clone(f.Value)
		o.known[last.Name] = last
	default:
		if o.known == nil {
			o.known = make(map[string]Field)
		}
		name := strings.Clone(f.Name)
		o.known[name] = Field{Name: name, Value: strings.Clone(f.Value)}
	}
	_ = o.encoder.WriteField(Field{Name: f.Name, Value: f.Value, Sensitive: true})
}
