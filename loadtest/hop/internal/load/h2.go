//go:build linux

package load

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"golang.org/x/net/http2/hpack"
)

// h2 is several requests at a time over HTTP/2 (RFC 9113). It sends heads that
// are compressed in advance, without the dynamic table, and of the answers'
// heads it understands nothing but the status.
type h2 struct {
	meter    *meter
	part     []byte // the beginning of a frame whose end has not come
	last     uint32 // id of the last stream
	streams  []stream
	received int64 // bytes of bodies since the connection's window was last opened
}

type stream struct {
	id     uint32
	status int
	begun  int64
	bytes  int64
	detail detail
}

// Types of frames, and flags.
const (
	frameData         = 0
	frameHeaders      = 1
	frameReset        = 3
	frameSettings     = 4
	framePing         = 6
	frameGoAway       = 7
	frameWindowUpdate = 8

	flagEndStream  = 1
	flagAck        = 1
	flagEndHeaders = 4
	flagPadded     = 8
	flagPriority   = 0x20

	frameHeaderLen = 9
	largestWindow  = 1<<31 - 1
	firstWindow    = 1<<16 - 1
)

func appendFrame(b []byte, kind, flags byte, stream uint32, payload []byte) []byte {
	b = append(b, byte(len(payload)>>16), byte(len(payload)>>8), byte(len(payload)), kind, flags)
	return append(binary.BigEndian.AppendUint32(b, stream), payload...)
}

// h2Request returns the frame of a request, for any stream.
func h2Request(cfg Config, key string) []byte {
	block := []byte{0x82, 0x86} // :method GET, :scheme http
	block = appendString(append(block, 0x04), cfg.Path)
	block = appendString(append(block, 0x01), host)
	for _, f := range requestFields(&cfg) {
		block = appendString(appendString(append(block, 0), strings.ToLower(f[0])), f[1])
	}
	block = appendString(appendString(append(block, 0), "x-key"), key)
	return appendFrame(nil, frameHeaders, flagEndStream|flagEndHeaders, 0, block)
}

// appendString appends a string of less than 127 bytes as HPACK has it.
func appendString(b []byte, s string) []byte { return append(append(b, byte(len(s))), s...) }

func (s *h2) busy() int { return len(s.streams) }

func (s *h2) begin(out []byte, now int64) []byte {
	out = append(out, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"...)
	settings := binary.BigEndian.AppendUint32([]byte{0, 4}, largestWindow) // SETTINGS_INITIAL_WINDOW_SIZE
	out = appendFrame(out, frameSettings, 0, 0, settings)
	out = appendFrame(out, frameWindowUpdate, 0, 0, binary.BigEndian.AppendUint32(nil, largestWindow-firstWindow))
	for range s.meter.course.cfg.Streams {
		out = s.send(out, now)
	}
	return out
}

func (s *h2) send(out []byte, now int64) []byte {
	request, _, ok := s.meter.next(now)
	if !ok {
		return out
	}
	s.last = (s.last + 1) | 1
	s.streams = append(s.streams, stream{id: s.last, begun: now})
	at := len(out)
	out = append(out, request...)
	binary.BigEndian.PutUint32(out[at+5:], s.last)
	return out
}

func (s *h2) feed(in, out []byte, now int64) ([]byte, error) {
	if len(s.part) > 0 {
		in = append(s.part, in...)
		s.part = nil
	}
	for len(in) >= frameHeaderLen {
		length := int(in[0])<<16 | int(in[1])<<8 | int(in[2])
		if len(in) < frameHeaderLen+length {
			break
		}
		var err error
		id := binary.BigEndian.Uint32(in[5:]) & largestWindow
		if out, err = s.frame(in[3], in[4], id, in[frameHeaderLen:frameHeaderLen+length], out, now); err != nil {
			return out, err
		}
		in = in[frameHeaderLen+length:]
	}
	if len(in) > 0 {
		s.part = append([]byte(nil), in...)
	}
	return out, nil
}

var (
	errGoAway = errors.New("load: the server ends the connection")
	errFrame  = errors.New("load: malformed frame")
)

func (s *h2) frame(kind, flags byte, id uint32, payload, out []byte, now int64) ([]byte, error) {
	switch kind {
	case frameSettings:
		if flags&flagAck == 0 {
			out = appendFrame(out, frameSettings, flagAck, 0, nil)
		}
	case framePing:
		if flags&flagAck == 0 {
			out = appendFrame(out, framePing, flagAck, 0, payload)
		}
	case frameGoAway:
		return out, fmt.Errorf("%w: %x", errGoAway, payload)
	case frameHeaders, frameData, frameReset:
		return s.streamFrame(kind, flags, id, payload, out, now)
	}
	return out, nil
}

func (s *h2) streamFrame(kind, flags byte, id uint32, payload, out []byte, now int64) ([]byte, error) {
	i := 0
	for ; i < len(s.streams) && s.streams[i].id != id; i++ {
	}
	if i == len(s.streams) {
		return out, fmt.Errorf("%w: of no stream of mine", errFrame)
	}
	st := &s.streams[i]
	switch kind {
	case frameHeaders:
		if st.status == 0 {
			st.status = headersStatus(flags, payload)
		}
	case frameData:
		if st.status != 200 {
			st.detail.add(payload)
		}
		st.bytes += int64(len(payload))
		if s.received += int64(len(payload)); s.received > largestWindow/2 {
			out = appendFrame(out, frameWindowUpdate, 0, 0, binary.BigEndian.AppendUint32(nil, uint32(s.received)))
			s.received = 0
		}
	case frameReset:
		st.detail = fmt.Appendf(nil, "stream reset with %x after status %d and %d bytes", payload, st.status, st.bytes)
		st.status, flags = 0, flagEndStream
	}
	if flags&flagEndStream == 0 {
		return out, nil
	}
	s.meter.answered(st.begun, now, st.status, st.bytes, st.detail.take())
	s.streams[i] = s.streams[len(s.streams)-1]
	s.streams = s.streams[:len(s.streams)-1]
	return s.send(out, now), nil
}

// headersStatus returns the status, or 0 if it is not understood.
func headersStatus(flags byte, block []byte) (status int) {
	if flags&(flagPadded|flagPriority) == 0 && len(block) > 0 && block[0] == 0x88 { // nearly always
		return 200
	}
	skip, padding := 0, 0
	if flags&flagPadded != 0 && len(block) > 0 {
		skip, padding = 1, int(block[0])
	}
	if flags&flagPriority != 0 {
		skip += 5
	}
	block = block[min(skip, len(block)):]
	block = block[:max(len(block)-padding, 0)]
	d := hpack.NewDecoder(4096, func(f hpack.HeaderField) {
		if f.Name == ":status" {
			status, _ = strconv.Atoi(f.Value) // 0 if it is none
		}
	})
	_, _ = d.Write(block) // the status comes first, before what earlier blocks may have defined
	return status
}
