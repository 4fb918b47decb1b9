package h2

import (
	"context"
	"encoding/binary"
	"math"
	"slices"
)

// frame takes a frame from the client.
func (c *Conn) frame(f frame, p []byte) error {
	switch {
	case c.block.open && (f.kind != frameContinuation || f.stream != c.block.stream):
		return fatal(ProtocolError, "CONTINUATION is due")
	case !c.greeted && (f.kind != frameSettings || f.has(flagAck)):
		return fatal(ProtocolError, "SETTINGS do not come first")
	}
	switch f.kind {
	case frameHeaders:
		return c.headers(f, p)
	case frameContinuation:
		if !c.block.open {
			return fatal(ProtocolError, "CONTINUATION of nothing")
		}
		return c.fragment(f, p)
	case framePushPromise:
		return fatal(ProtocolError, "PUSH_PROMISE from a client")
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch f.kind {
	case frameData:
		return c.dataLocked(f, p)
	case framePriority:
		return c.priorityLocked(f, p)
	case frameReset:
		return c.resetByLocked(f, p)
	case frameSettings:
		return c.settingsLocked(f, p)
	case framePing:
		return c.pingLocked(f, p)
	case frameGoAway:
		if f.stream != 0 {
			return fatal(ProtocolError, "GOAWAY on a stream")
		}
		if len(p) < 8 {
			return fatal(FrameSizeError, "GOAWAY")
		}
		return c.chargeLocked(calmFrame)
	case frameWindowUpdate:
		return c.windowUpdateLocked(f, p)
	}
	return c.chargeLocked(calmFrame) // an extension
}

// idleLocked reports whether the client has yet to use the stream's number.
func (c *Conn) idleLocked(id uint32) bool { return id%2 == 0 || id > c.last && c.leaving < refusing }

func (c *Conn) sendResetLocked(id uint32, code Code) {
	c.controlLocked(appendWord(nil, frameReset, id, uint32(code)))
	if len(c.resets) < c.srv.MaxStreams {
		c.resets = append(c.resets, id)
	} else {
		c.resets[c.reset%len(c.resets)] = id
	}
	c.reset++
}

// wasResetLocked reports whether the client may be unaware that the stream is over.
func (c *Conn) wasResetLocked(id uint32) bool { return slices.Contains(c.resets, id) || id > c.last }

// breachLocked resets a stream on which the client has broken the protocol.
func (c *Conn) breachLocked(id uint32, code Code) error {
	if st := c.streams[id]; st != nil {
		st.giveUpLocked(code, errBroken)
	} else {
		c.sendResetLocked(id, code)
	}
	return c.chargeLocked(calmReset)
}

// headers begins a list of fields.
func (c *Conn) headers(f frame, p []byte) error {
	p, ok := unpad(f, p)
	if !ok || f.stream%2 == 0 {
		return fatal(ProtocolError, "HEADERS with a bad number or padding")
	}
	ownParent := false
	if f.has(flagPriority) {
		if len(p) < 5 {
			return fatal(FrameSizeError, "HEADERS")
		}
		ownParent = binary.BigEndian.Uint32(p)&maxID == f.stream
		p = p[5:]
	}
	purpose, code, err := c.purpose(f)
	if err != nil {
		return err
	}
	if ownParent && purpose != purposeIgnore {
		purpose, code = purposeReset, ProtocolError
	}
	c.block.beginBlock(purpose, f, c.srv.MaxHeaderBytes)
	c.block.code = code
	return c.fragment(f, p)
}

// purpose says what HEADERS mean on their stream.
func (c *Conn) purpose(f frame) (purpose, Code, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	st := c.streams[f.stream]
	switch {
	case f.stream > c.last && c.leaving >= refusing:
		return purposeIgnore, 0, nil
	case f.stream > c.last:
		c.last = f.stream
		return purposeRequest, 0, nil
	case st == nil && c.wasResetLocked(f.stream):
		return purposeIgnore, 0, nil
	case st == nil:
		return 0, 0, fatal(StreamClosed, "HEADERS on a stream that has ended")
	case st.ended:
		return purposeReset, StreamClosed, nil
	case !f.has(flagEndStream):
		return purposeReset, ProtocolError, nil
	}
	return purposeTrailer, 0, nil
}

// decodeSize is how many bytes of a list of fields are decoded before it is seen
// how much they say: each may stand for a field of kilobytes.
const decodeSize = 1 << 10

// fragment takes a part of a list of fields.
func (c *Conn) fragment(f frame, p []byte) error {
	b := &c.block
	if b.room -= len(p) + frameHeaderLen; b.room < 0 {
		return fatal(EnhanceYourCalm, "too many header fields")
	}
	for len(p) > 0 {
		n := min(len(p), decodeSize)
		if _, err := c.decoder.Write(p[:n]); err != nil {
			return fatal(CompressionError, "bad header compression")
		}
		if b.flood() {
			return fatal(EnhanceYourCalm, "too many header fields")
		}
		p = p[n:]
	}
	if !f.has(flagEndHeaders) {
		return nil
	}
	if err := c.decoder.Close(); err != nil {
		return fatal(CompressionError, "bad header compression")
	}
	b.open = false
	b.finish()
	st, err := c.takeBlock(b)
	freeFields(b.fields)
	b.fields, b.request = nil, Request{}
	if st != nil {
		c.srv.beginStream(st)
	}
	return err
}

// takeBlock acts on a list of fields that is complete. It returns a stream whose handler is to
// run.
func (c *Conn) takeBlock(b *block) (*Stream, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case b.purpose == purposeIgnore:
		return nil, c.chargeLocked(calmFrame)
	case b.purpose == purposeReset:
		return nil, c.breachLocked(b.stream, b.code)
	case b.bad != "":
		return nil, c.breachLocked(b.stream, ProtocolError)
	case b.purpose == purposeTrailer:
		return nil, c.trailersLocked(b)
	case b.tooLarge:
		c.fieldsLocked(b.stream, 431, nil, true)
		c.startLocked()
		if !b.end {
			c.sendResetLocked(b.stream, NoError)
		}
		return nil, c.chargeLocked(calmReset)
	case len(c.streams) >= c.srv.MaxStreams, c.running >= 2*c.srv.MaxStreams:
		c.sendResetLocked(b.stream, RefusedStream)
		return nil, c.chargeLocked(calmReset)
	}
	return c.openLocked(b), nil
}

// openLocked makes the stream of a request, whose handler is to run.
func (c *Conn) openLocked(b *block) *Stream {
	st := &Stream{Request: b.request, conn: c, id: b.stream, fields: b.fields, ended: b.end, receive: initialReceive, credit: c.window, need: c.srv.ClientBytes}
	b.fields = nil
	st.ctx, st.cancel = context.WithCancel(context.Background())
	st.cond.L = &c.mu
	c.streams[st.id] = st
	c.running++
	return st
}

// trailersLocked ends the body of a stream.
func (c *Conn) trailersLocked(b *block) error {
	st := c.streams[b.stream]
	switch {
	case st == nil: // it was reset meanwhile
		return nil
	case b.tooLarge:
		return c.breachLocked(b.stream, EnhanceYourCalm)
	}
	st.trailer = slices.Clone(b.request.Fields)
	return st.endLocked()
}

// dataLocked takes a part of a body.
func (c *Conn) dataLocked(f frame, p []byte) error {
	body, ok := unpad(f, p)
	switch {
	case f.stream == 0 || !ok:
		return fatal(ProtocolError, "DATA with a bad number or padding")
	case c.idleLocked(f.stream):
		return fatal(ProtocolError, "DATA on a stream that was never opened")
	case f.length > c.receive:
		return fatal(FlowControlError, "the window is exceeded")
	}
	c.receive -= f.length
	st := c.streams[f.stream]
	if st == nil || st.ended {
		c.grantLocked(f.length)
		if st == nil && c.wasResetLocked(f.stream) {
			return nil
		}
		return c.breachLocked(f.stream, StreamClosed)
	}
	if f.length > st.receive {
		c.grantLocked(f.length)
		return c.breachLocked(f.stream, FlowControlError)
	}
	st.receive -= f.length
	st.got += int64(len(body))
	if st.ContentLength >= 0 && st.got > st.ContentLength {
		c.grantLocked(f.length)
		return c.breachLocked(f.stream, ProtocolError)
	}
	if st.memory != nil && st.memory.Reserve(int(st.got)) {
		st.early += len(body)
		c.grantLocked(len(body))
	}
	st.bufferLocked(body)
	st.consumedLocked(f.length - len(body))
	if f.has(flagEndStream) {
		return st.endLocked()
	}
	if len(body) == 0 {
		return c.chargeLocked(calmFrame)
	}
	if st.need -= int64(len(body)); st.need <= 0 {
		st.waited, st.need = 0, c.srv.ClientBytes
	}
	st.wakeLocked()
	return nil
}

func (c *Conn) grantLocked(n int) {
	if c.owed += n; c.owed < connReceive/2 {
		return
	}
	c.receive += c.owed
	c.controlLocked(appendWord(nil, frameWindowUpdate, 0, uint32(c.owed)))
	c.owed = 0
}

func (c *Conn) resetByLocked(f frame, p []byte) error {
	switch {
	case len(p) != 4:
		return fatal(FrameSizeError, "RST_STREAM")
	case c.idleLocked(f.stream):
		return fatal(ProtocolError, "RST_STREAM of a stream that was never opened")
	}
	if st := c.streams[f.stream]; st != nil {
		st.failLocked(errReset)
		return c.chargeLocked(calmReset)
	}
	return c.chargeLocked(calmFrame)
}

// priorityLocked takes PRIORITY, which RFC 9113, section 5.3, has abolished.
func (c *Conn) priorityLocked(f frame, p []byte) error {
	switch {
	case f.stream == 0:
		return fatal(ProtocolError, "PRIORITY of no stream")
	case len(p) != 5:
		return c.breachLocked(f.stream, FrameSizeError)
	case binary.BigEndian.Uint32(p)&maxID == f.stream:
		return c.breachLocked(f.stream, ProtocolError)
	}
	return c.chargeLocked(calmFrame)
}

func (c *Conn) settingsLocked(f frame, p []byte) error {
	switch {
	case f.stream != 0:
		return fatal(ProtocolError, "SETTINGS on a stream")
	case f.has(flagAck) && len(p) > 0, len(p)%6 != 0:
		return fatal(FrameSizeError, "SETTINGS")
	case f.has(flagAck):
		c.ackBy = 0
		return c.chargeLocked(calmFrame)
	}
	c.greeted = true
	for ; len(p) > 0; p = p[6:] {
		if err := c.setting(binary.BigEndian.Uint16(p), binary.BigEndian.Uint32(p[2:])); err != nil {
			return err
		}
	}
	c.controlLocked(appendFrame(nil, frame{kind: frameSettings, flags: flagAck}))
	return c.chargeLocked(calmChange)
}

func (c *Conn) setting(id uint16, value uint32) error {
	switch id {
	case settingTableSize:
		c.out.encoder.SetMaxDynamicTableSize(min(value, 4096))
	case settingPush:
		if value > 1 {
			return fatal(ProtocolError, "SETTINGS_ENABLE_PUSH")
		}
	case settingInitialWindow:
		if value > maxWindow {
			return fatal(FlowControlError, "SETTINGS_INITIAL_WINDOW_SIZE")
		}
		return c.resizeLocked(int(value))
	case settingMaxFrame:
		if value < maxFrame || value > 1<<24-1 {
			return fatal(ProtocolError, "SETTINGS_MAX_FRAME_SIZE")
		}
	}
	return c.chargeLocked(calmFrame)
}

// resizeLocked changes the window that streams begin with, and adjusts the open streams by the
// change.
func (c *Conn) resizeLocked(window int) error {
	change := window - c.window
	c.window = window
	for _, st := range c.streams {
		if st.credit > math.MaxInt32-change {
			return fatal(FlowControlError, "SETTINGS_INITIAL_WINDOW_SIZE")
		}
		st.credit += change
		st.wakeLocked()
	}
	return c.chargeLocked(calmChange)
}

func (c *Conn) pingLocked(f frame, p []byte) error {
	switch {
	case f.stream != 0:
		return fatal(ProtocolError, "PING on a stream")
	case len(p) != 8:
		return fatal(FrameSizeError, "PING")
	case !f.has(flagAck):
		c.controlLocked(append(appendFrame(nil, frame{length: 8, kind: framePing, flags: flagAck}), p...))
	}
	return c.chargeLocked(calmFrame)
}

// tinyGrant is the size below which WINDOW_UPDATE costs something: a client has
// no reason for it.
const tinyGrant = 256

func (c *Conn) windowUpdateLocked(f frame, p []byte) error {
	if len(p) != 4 {
		return fatal(FrameSizeError, "WINDOW_UPDATE")
	}
	n := int(binary.BigEndian.Uint32(p) & maxWindow)
	st := c.streams[f.stream]
	switch {
	case f.stream == 0 && n == 0:
		return fatal(ProtocolError, "WINDOW_UPDATE by nothing")
	case f.stream == 0 && n > maxWindow-c.credit:
		return fatal(FlowControlError, "WINDOW_UPDATE beyond the largest window")
	case f.stream == 0:
		c.credit += n
		c.unblockLocked()
	case c.idleLocked(f.stream):
		return fatal(ProtocolError, "WINDOW_UPDATE of a stream that was never opened")
	case st == nil:
	case n == 0:
		return c.breachLocked(f.stream, ProtocolError)
	case n > maxWindow-st.credit:
		return c.breachLocked(f.stream, FlowControlError)
	default:
		st.credit += n
		if c.credit > 0 {
			st.wakeLocked()
		}
	}
	if n < tinyGrant {
		return c.chargeLocked(calmFrame)
	}
	return nil
}
