//go:build linux

package load

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// h2 is several requests at a time over HTTP/2 (RFC 9113). It sends heads that
// are compressed in advance, without the dynamic table, and of the answers'
// heads it understands nothing but whether the status is 200.
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
	block = appendString(append(block, 0x01), "bench.example")
	block = appendString(appendString(append(block, 0), "user-agent"), "keyway-hop")
	block = appendString(appendString(append(block, 0), "accept"), "*/*")
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
		st.bytes += int64(len(payload))
		if s.received += int64(len(payload)); s.received > largestWindow/2 {
			out = appendFrame(out, frameWindowUpdate, 0, 0, binary.BigEndian.AppendUint32(nil, uint32(s.received)))
			s.received = 0
		}
	case frameReset:
		st.status, flags = 1, flagEndStream
	}
	if flags&flagEndStream == 0 {
		return out, nil
	}
	s.meter.answered(st.begun, now, st.status, st.bytes)
	s.streams[i] = s.streams[len(s.streams)-1]
	s.streams = s.streams[:len(s.streams)-1]
	return s.send(out, now), nil
}

// headersStatus returns 200 or, for any other status, 599.
func headersStatus(flags byte, block []byte) int {
	skip := 0
	if flags&flagPadded != 0 {
		skip++
	}
	if flags&flagPriority != 0 {
		skip += 5
	}
	block = block[min(skip, len(block)):]
	for len(block) > 0 && block[0]&0xe0 == 0x20 { // the size of the dynamic table
		more := block[0]&0x1f == 0x1f
		for block = block[1:]; more && len(block) > 0; block = block[1:] {
			more = block[0]&0x80 != 0
		}
	}
	if len(block) > 0 && block[0] == 0x88 {
		return 200
	}
	return 599
}
