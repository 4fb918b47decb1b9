//go:build linux

package load

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// h2 is several requests at a time over HTTP/2 (RFC 9113). It sends heads that
// are compressed in advance, without the dynamic table, and of the answers'
// heads it understands nothing but the status.
type h2 struct {
	owner    owner
	in, out  bytes.Buffer
	framer   *http2.Framer // over in and out
	last     uint32        // id of the last stream
	streams  []stream
	received int // bytes of bodies since the connection's window was last opened
}

type stream struct {
	id     uint32
	status int
	begun  time.Duration
	bytes  int64
	body   []byte // the beginning of one other than 200's, or what became of it
}

const (
	frameHead     = 9 // bytes: three of a length, at frameStream four of a stream's id
	frameStream   = 5
	largestWindow = 1<<31 - 1
	firstWindow   = 1<<16 - 1
)

// h2Request returns the frame of a request, for any stream.
func h2Request(m *Mix, key string) []byte {
	block := []byte{0x82, 0x86} // :method GET, :scheme http
	if m.Method == "POST" {
		block[0] = 0x83
	}
	block = appendString(append(block, 0x04), m.Path)
	block = appendString(append(block, 0x01), host)
	for _, f := range fields(key) {
		block = appendString(appendString(append(block, 0), strings.ToLower(f[0])), f[1])
	}
	var frame bytes.Buffer
	_ = http2.NewFramer(&frame, nil).WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block, EndStream: true, EndHeaders: true}) // a buffer takes it
	return frame.Bytes()
}

// appendString appends a string of less than 127 bytes as HPACK has it.
func appendString(b []byte, s string) []byte { return append(append(b, byte(len(s))), s...) }

func newH2(o owner) *h2 {
	s := &h2{owner: o}
	s.framer = http2.NewFramer(&s.out, &s.in)
	s.framer.SetReuseFrames()
	s.out.WriteString(http2.ClientPreface)
	_ = s.framer.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: largestWindow}) // a buffer takes all frames
	_ = s.framer.WriteWindowUpdate(0, largestWindow-firstWindow)
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
	at := s.out.Len()
	s.out.Write(request)
	binary.BigEndian.PutUint32(s.out.Bytes()[at+frameStream:], s.last)
}

func (s *h2) unsent() []byte {
	defer s.out.Reset()
	return s.out.Bytes()
}

// whole reports whether a frame has come.
func (s *h2) whole() bool {
	b := s.in.Bytes()
	return len(b) >= frameHead && len(b) >= frameHead+(int(b[0])<<16|int(b[1])<<8|int(b[2]))
}

func (s *h2) feed(in []byte) error {
	s.in.Write(in)
	for s.whole() {
		f, err := s.framer.ReadFrame()
		if err == nil {
			err = s.frame(f)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

var (
	errGoAway = errors.New("load: the server ends the connection")
	errFrame  = errors.New("load: malformed frame")
)

func (s *h2) frame(f http2.Frame) error {
	i := slices.IndexFunc(s.streams, func(st stream) bool { return st.id == f.Header().StreamID })
	if i < 0 {
		return s.other(f)
	}
	st, ends := &s.streams[i], false
	switch f := f.(type) {
	case *http2.HeadersFrame:
		if ends = f.StreamEnded(); st.status == 0 {
			st.status = statusIn(f.HeaderBlockFragment())
		}
	case *http2.DataFrame:
		if ends = f.StreamEnded(); st.status != 200 {
			st.body = keep(st.body, f.Data())
		}
		st.bytes += int64(len(f.Data()))
		if s.received += int(f.Length); s.received > largestWindow/2 {
			_ = s.framer.WriteWindowUpdate(0, uint32(s.received))
			s.received = 0
		}
	case *http2.RSTStreamFrame:
		st.body = fmt.Appendf(nil, "stream reset with %v after status %d and %d bytes", f.ErrCode, st.status, st.bytes)
		st.status, ends = 0, true
	}
	if ends {
		done := *st
		s.streams = slices.Delete(s.streams, i, i+1)
		s.owner.answered(done.begun, done.status, done.bytes, done.body)
	}
	return nil
}

// other takes a frame of no stream that is under way.
func (s *h2) other(f http2.Frame) error {
	switch f := f.(type) {
	case *http2.SettingsFrame:
		if !f.IsAck() {
			return s.framer.WriteSettingsAck()
		}
	case *http2.PingFrame:
		if !f.IsAck() {
			return s.framer.WritePing(true, f.Data)
		}
	case *http2.GoAwayFrame:
		return fmt.Errorf("%w: %v", errGoAway, f.ErrCode)
	case *http2.HeadersFrame, *http2.DataFrame, *http2.RSTStreamFrame:
		return fmt.Errorf("%w: of no stream of mine", errFrame)
	}
	return nil
}

// statusIn returns the status in a block of header fields, or 0 if it is not understood.
func statusIn(block []byte) (status int) {
	if len(block) > 0 && block[0] == 0x88 { // nearly always
		return 200
	}
	d := hpack.NewDecoder(4096, func(f hpack.HeaderField) {
		if f.Name == ":status" {
			status, _ = strconv.Atoi(f.Value) // 0 if it is none
		}
	})
	_, _ = d.Write(block) // the status comes first, before what earlier blocks may have defined
	return status
}
