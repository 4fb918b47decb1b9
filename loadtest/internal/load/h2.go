//go:build linux

package load

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"golang.org/x/net/http2/hpack"
)

// h2 is several requests at a time over HTTP/2 (RFC 9113). It sends heads that
// are compressed in advance, without the dynamic table, and of the answers'
// heads it understands nothing but the status.
type h2 struct {
	outbox
	owner    owner
	part     []byte // the beginning of a frame whose end has not come
	last     uint32 // id of the last stream
	streams  []stream
	received int64 // bytes of bodies since the connection's window was last opened
}

type stream struct {
	id     uint32
	status int
	begun  time.Duration
	bytes  int64
	body   []byte // the beginning of one other than 200's, or what became of it
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
func h2Request(m *Mix, method, key string) []byte {
	block := []byte{0x82, 0x86} // :method GET, :scheme http
	if method == "POST" {
		block[0] = 0x83
	}
	block = appendString(append(block, 0x04), m.Path)
	block = appendString(append(block, 0x01), host)
	for _, f := range m.fields() {
		block = appendString(appendString(append(block, 0), strings.ToLower(f[0])), f[1])
	}
	block = appendString(appendString(append(block, 0), strings.ToLower(HeaderKey)), key)
	return appendFrame(nil, frameHeaders, flagEndStream|flagEndHeaders, 0, block)
}

// appendString appends a string of less than 127 bytes as HPACK has it.
func appendString(b []byte, s string) []byte { return append(append(b, byte(len(s))), s...) }

func newH2(o owner) *h2 {
	s := &h2{owner: o}
	s.out = append(s.out, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"...)
	settings := binary.BigEndian.AppendUint32([]byte{0, 4}, largestWindow) // SETTINGS_INITIAL_WINDOW_SIZE
	s.out = appendFrame(s.out, frameSettings, 0, 0, settings)
	s.out = appendFrame(s.out, frameWindowUpdate, 0, 0, binary.BigEndian.AppendUint32(nil, largestWindow-firstWindow))
	return s
}

func (s *h2) underWay() (all []time.Duration) {
	for i := range s.streams {
		all = append(all, s.streams[i].begun)
	}
	return all
}

func (s *h2) send(request []byte, begun time.Duration) {
	s.last = (s.last + 1) | 1
	s.streams = append(s.streams, stream{id: s.last, begun: begun})
	at := len(s.out)
	s.out = append(s.out, request...)
	binary.BigEndian.PutUint32(s.out[at+5:], s.last)
}

func (s *h2) feed(in []byte) error {
	if len(s.part) > 0 {
		in = append(s.part, in...)
		s.part = nil
	}
	for len(in) >= frameHeaderLen {
		length := int(in[0])<<16 | int(in[1])<<8 | int(in[2])
		if len(in) < frameHeaderLen+length {
			break
		}
		id := binary.BigEndian.Uint32(in[5:]) & largestWindow
		if err := s.frame(in[3], in[4], id, in[frameHeaderLen:frameHeaderLen+length]); err != nil {
			return err
		}
		in = in[frameHeaderLen+length:]
	}
	if len(in) > 0 {
		s.part = append([]byte(nil), in...)
	}
	return nil
}

var (
	errGoAway = errors.New("load: the server ends the connection")
	errFrame  = errors.New("load: malformed frame")
)

func (s *h2) frame(kind, flags byte, id uint32, payload []byte) error {
	switch kind {
	case frameSettings:
		if flags&flagAck == 0 {
			s.out = appendFrame(s.out, frameSettings, flagAck, 0, nil)
		}
	case framePing:
		if flags&flagAck == 0 {
			s.out = appendFrame(s.out, framePing, flagAck, 0, payload)
		}
	case frameGoAway:
		return fmt.Errorf("%w: %x", errGoAway, payload)
	case frameHeaders, frameData, frameReset:
		return s.streamFrame(kind, flags, id, payload)
	}
	return nil
}

func (s *h2) streamFrame(kind, flags byte, id uint32, payload []byte) error {
	i := 0
	for ; i < len(s.streams) && s.streams[i].id != id; i++ {
	}
	if i == len(s.streams) {
		return fmt.Errorf("%w: of no stream of mine", errFrame)
	}
	st := &s.streams[i]
	switch kind {
	case frameHeaders:
		if st.status == 0 {
			st.status = headersStatus(flags, payload)
		}
	case frameData:
		if st.status != 200 {
			st.body = keep(st.body, payload)
		}
		st.bytes += int64(len(payload))
		if s.received += int64(len(payload)); s.received > largestWindow/2 {
			s.out = appendFrame(s.out, frameWindowUpdate, 0, 0, binary.BigEndian.AppendUint32(nil, uint32(s.received)))
			s.received = 0
		}
	case frameReset:
		st.body = fmt.Appendf(nil, "stream reset with %x after status %d and %d bytes", payload, st.status, st.bytes)
		st.status, flags = 0, flagEndStream
	}
	if flags&flagEndStream == 0 {
		return nil
	}
	done := *st
	s.streams[i] = s.streams[len(s.streams)-1]
	s.streams = s.streams[:len(s.streams)-1]
	s.owner.answered(done.begun, done.status, done.bytes, done.body)
	return nil
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
