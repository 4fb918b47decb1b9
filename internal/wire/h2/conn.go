package h2

import (
	"encoding/binary"
	"errors"
	"net"
	"sync"
	"sync/atomic"

	"golang.org/x/net/http2/hpack"

	"github.com/keyway-go/keyway/internal/wire/netutil"
	"github.com/keyway-go/keyway/internal/wire/sock"
)

// Conn is a client's connection. One goroutine reads it and owns input, decoder and block.
// Everything below mu is guarded by mu and changed by that goroutine, the handlers, the writer and
// Check. leaving goes from staying to lingering in one direction; done means that the connection
// sends nothing more.
type Conn struct {
	srv     *Server
	nc      net.Conn
	handler func(*Stream)
	sock    *sock.Stream // nil if nc is not a socket

	tick  atomic.Int64 // calls of Check
	late  atomic.Int64 // tick at which what the reader waits for has taken too long; 0 for never
	heard atomic.Int64 // tick at which something was last read
	over  atomic.Bool  // what comes is not looked at any more

	input   // of the goroutine that reads
	decoder *hpack.Decoder
	block   block
	greeted bool // the client's first SETTINGS have come

	mu sync.Mutex // guards what follows

	streams   map[uint32]*Stream // that are open, or half closed
	last      uint32             // highest one that the client has opened
	running   int                // handlers, those of closed streams included
	resets    []uint32           // streams that were reset last, in a circle
	reset     int                // how many ever were
	allowance int                // see allowanceMax

	receive int // bytes of bodies that the client may send
	owed    int // bytes that were read and not yet granted again

	credit int // bytes of bodies that the client takes
	window int // that a stream begins with
	out    output

	idleSince int64     // tick at which the last stream ended
	pinged    int64     // tick at which the client was asked for a sign; 0 once it has given one
	ackBy     int64     // tick by which the client's SETTINGS ACK is due; 0 when it has come
	leaving   leaving   // how far shutting down has come
	leaveAt   int64     // tick of its next step
	done      bool      // nothing is sent any more
	rest      sync.Cond // when a handler or the writer has ended
}

// leaving is a stage of the end of a connection.
type leaving uint8

const (
	staying   leaving = iota
	announced         // the client knows that it should open no more streams
	refusing          // those that it opens are ignored
	lingering         // all is sent; the client may yet read it
)

const (
	initialReceive = 64 << 10  // window of a stream, until its body is read
	grownReceive   = 256 << 10 // and then
	connReceive    = 1 << 20   // window of the connection

	leaveTicks  = 2 // between the announcement and the end of new streams
	lingerTicks = 5 // for the client to read the last frames
)

// Bounds of frames that cost the server more than they bring the client: each
// takes from an allowance of allowanceMax at most, which each tick raises by
// allowanceTick.
const (
	allowanceMax  = 10_000
	allowanceTick = 1_000

	calmFrame  = 1  // a frame without effect
	calmReset  = 5  // a stream for nothing
	calmChange = 10 // SETTINGS
)

// NewConn returns a connection to serve, whose client has chosen HTTP/2 in its first bytes or in
// TLS. handler answers each stream on a goroutine of the stream's own. A stream that is not ended
// when it returns is reset.
func (s *Server) NewConn(nc net.Conn, handler func(*Stream)) *Conn {
	c := &Conn{srv: s, nc: nc, handler: handler, streams: make(map[uint32]*Stream), allowance: allowanceMax, receive: connReceive, credit: defaultWindow, window: defaultWindow}
	c.sock = sock.Open(nc, c.room, c.lend)
	c.decoder = hpack.NewDecoder(4096, c.block.addField)
	c.decoder.SetMaxStringLength(2 * s.MaxHeaderBytes)
	c.out.encoder = hpack.NewEncoder(&c.out)
	c.rest.L = &c.mu
	return c
}

// Serve serves the connection to its end and returns when no handler runs. read holds the bytes
// that were read from it before.
func (c *Conn) Serve(read []byte) {
	c.late.Store(int64(c.srv.HeadTicks))
	c.mu.Lock()
	c.hello()
	c.mu.Unlock()
	c.endConnection(c.run(read))
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.running > 0 || c.out.writing {
		c.rest.Wait()
	}
}

// hello sends the server's SETTINGS, and the connection's receive window.
func (c *Conn) hello() {
	var settings []byte
	settings = appendSetting(settings, settingMaxStreams, uint32(c.srv.MaxStreams))
	settings = appendSetting(settings, settingInitialWindow, initialReceive)
	settings = appendSetting(settings, settingMaxHeaderList, uint32(c.srv.MaxHeaderBytes))
	b := appendFrame(nil, frame{length: len(settings), kind: frameSettings})
	b = append(b, settings...)
	c.controlLocked(appendWord(b, frameWindowUpdate, 0, connReceive-defaultWindow))
	c.ackBy = int64(c.srv.HeadTicks)
}

// run reads until the connection ends.
func (c *Conn) run(read []byte) error {
	c.keep(read)
	for c.have() < len(preface) {
		if err := c.fill(); err != nil {
			return err
		}
	}
	if string(c.in[c.r:c.r+len(preface)]) != preface {
		return fatal(ProtocolError, "it does not begin as HTTP/2")
	}
	c.r += len(preface)
	for {
		if c.have() < frameHeaderLen {
			if err := c.fill(); err != nil {
				return err
			}
			continue
		}
		f := parseFrame(c.in[c.r:])
		if f.length > maxFrame {
			return fatal(FrameSizeError, "a frame is too long")
		}
		end := c.r + frameHeaderLen + f.length
		if end > c.w {
			if err := c.fill(); err != nil {
				return err
			}
			continue
		}
		if c.over.Load() {
			return nil
		}
		payload := c.in[c.r+frameHeaderLen : end]
		c.r = end
		if err := c.frame(f, payload); err != nil {
			return err
		}
		if !c.block.open && c.greeted && c.late.Load() != 0 {
			c.late.Store(0)
		}
	}
}

// await sets how long the next bytes may take.
func (c *Conn) await() {
	if c.late.Load() != 0 {
		return
	}
	limit := 0
	switch {
	case c.block.open:
		limit = c.srv.HeadTicks
	case c.have() == 0:
		return
	case c.have() < frameHeaderLen || parseFrame(c.in[c.r:]).kind == frameHeaders:
		limit = c.srv.HeadTicks
	default:
		limit = c.srv.ClientTicks
	}
	if limit > 0 {
		c.late.Store(c.tick.Load() + int64(limit))
	}
}

// endConnection ends the streams and the connection after reading has failed with err. If the client is at
// fault, it is told why, and gets time to read that.
func (c *Conn) endConnection(err error) {
	broken, ok := errors.AsType[*connError](err)
	c.mu.Lock()
	if ok && c.leaving != lingering {
		c.goAwayLocked(c.last, broken.code, broken.why)
		c.lingerLocked()
	}
	c.over.Store(true)
	linger := c.leaving == lingering
	c.abortLocked()
	c.mu.Unlock()
	for linger && c.fill() == nil {
		c.r, c.w = 0, 0
	}
	c.Close()
	c.mu.Lock()
	c.done = true
	c.mu.Unlock()
	c.lend()
}

func (c *Conn) abortLocked() {
	for _, st := range c.streams {
		st.failLocked(errClosed)
	}
}

// Check must be called at each tick. Once leave is set, it announces the end to the client, refuses
// new streams leaveTicks later, and ends the connection after the running ones.
func (c *Conn) Check(leave bool) {
	now := c.tick.Add(1)
	if late := c.late.Load(); late != 0 && now >= late {
		c.Close()
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.allowance = min(c.allowance+allowanceTick, allowanceMax)
	c.checkStreams(now)
	switch idle := c.quietLocked(); {
	case c.stuckLocked(now), !idle && c.deadLocked(now), c.leaving == lingering && now >= c.leaveAt:
		c.Close()
	case c.leaving == lingering:
	case c.ackBy != 0 && now >= c.ackBy:
		c.leaveLocked(SettingsTimeout)
	case idle && now-c.idleSince >= int64(c.srv.IdleTicks), c.leaving == refusing && idle:
		c.leaveLocked(NoError)
	case leave && c.leaving == staying:
		c.goAwayLocked(maxID, NoError, "") // it is to open no more streams; those under way are still served
		c.leaving, c.leaveAt = announced, now+leaveTicks
	case c.leaving == announced && now >= c.leaveAt:
		c.goAwayLocked(c.last, NoError, "")
		c.leaving = refusing
	}
}

// deadLocked reports whether a client with requests under way gives no sign of life: its machine
// may have vanished. The client is pinged only if nothing was sent to it for a while either, since
// a slow client may need long to read what was sent before.
func (c *Conn) deadLocked(now int64) bool {
	patience, heard := int64(c.srv.PingTicks), c.heard.Load()
	switch {
	case patience == 0 || c.leaving == lingering:
	case c.pinged != 0 && heard >= c.pinged:
		c.pinged = 0
	case c.pinged != 0:
		return now-c.pinged >= patience
	case now-max(heard, c.out.wrote) >= patience:
		c.pinged = now
		c.controlLocked(append(appendFrame(nil, frame{length: 8, kind: framePing}), "keyway  "...))
	}
	return false
}

// checkStreams gives streams up that wait for the client for too long.
func (c *Conn) checkStreams(now int64) {
	patience := int64(c.srv.ClientTicks)
	if patience == 0 {
		return
	}
	for _, st := range c.streams {
		if st.reading && !st.patient {
			if st.waited++; st.waited >= patience {
				st.interrupted = true
				st.wakeLocked()
			}
		}
		if st.sending != 0 && now-st.sending >= patience {
			st.giveUpLocked(Cancel, errLate)
		}
	}
}

// leaveLocked ends the connection; streams that run are lost.
func (c *Conn) leaveLocked(code Code) {
	if c.leaving != refusing || code != NoError {
		c.goAwayLocked(c.last, code, "")
	}
	c.lingerLocked()
	c.over.Store(true)
	c.abortLocked()
}

// lingerLocked lets what is queued go out, and then waits for the client to
// close the connection: closing it with bytes unread could lose what it has not
// read.
func (c *Conn) lingerLocked() {
	c.leaving, c.leaveAt = lingering, c.tick.Load()+lingerTicks
	c.late.Store(0)
	c.startLocked()
}

// goAwayLocked tells the client the last stream that is served, and the reason.
func (c *Conn) goAwayLocked(last uint32, code Code, why string) {
	b := appendFrame(nil, frame{length: 8 + len(why), kind: frameGoAway})
	b = binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(b, last), uint32(code))
	c.controlLocked(append(b, why...))
}

// Idle returns for how many calls of Check no request has been under way. It is
// 0 if one is, or the connection is coming to its end.
func (c *Conn) Idle() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.quietLocked() || c.leaving != staying {
		return 0
	}
	return c.tick.Load() - c.idleSince
}

// EndIdle ends the connection, unless a request is under way.
func (c *Conn) EndIdle() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.quietLocked() && c.leaving == staying {
		c.leaveLocked(NoError)
	}
}

func (c *Conn) quietLocked() bool { return len(c.streams) == 0 && c.running == 0 }

// Close ends the connection at once. It may be called more than once.
func (c *Conn) Close() { netutil.CloseNow(c.nc) }

func (c *Conn) chargeLocked(cost int) error {
	if c.allowance -= cost; c.allowance < 0 {
		return fatal(EnhanceYourCalm, "too much that leads to nothing")
	}
	return nil
}
