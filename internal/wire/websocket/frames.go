package websocket

import "encoding/binary"

// Frames follows the frames of one direction of a connection. The zero value
// stands at the first one. It is not for several goroutines at once.
type Frames struct {
	head    [10]byte // what has come of the present frame's first bytes
	have    int      // of head
	payload uint64   // bytes that have to come yet behind head, masking key included
	closed  bool
	lost    bool
}

// Take takes those bytes of b that belong to the present frame, which begins with
// them at a boundary, and returns how many these are: less than len(b) only if the
// frame has ended.
func (f *Frames) Take(b []byte) int {
	if f.lost {
		return len(b)
	}
	n := 0
	for n < len(b) && !f.headed() {
		f.head[f.have] = b[n]
		f.have++
		n++
		if f.headed() {
			f.beginFrame()
		}
	}
	if f.lost {
		return len(b)
	}
	rest := min(uint64(len(b)-n), f.payload)
	f.payload -= rest
	if f.headed() && f.payload == 0 {
		f.closed = f.closed || f.head[0]&opcodeMask == opcodeClose
		f.have = 0
	}
	return n + int(rest)
}

// AtBoundary reports whether what has been taken ends with a frame, so that a
// control frame may follow. That is never so again after a frame whose length is
// none (RFC 6455, section 5.2).
func (f *Frames) AtBoundary() bool { return f.have == 0 && !f.lost }

// Closed reports whether a close frame has been taken, after which no other frame
// may follow.
func (f *Frames) Closed() bool { return f.closed }

// Parts of a frame (RFC 6455, section 5.2).
const (
	opcodeMask  = 0x0f
	opcodeClose = 0x8
	finBit      = 0x80
	maskBit     = 0x80
	lengthMask  = 0x7f
	length16    = 126 // the length stands in the two bytes that follow
	length64    = 127 // in eight bytes

	maxControl = 125 // bytes of a control frame's payload
)

// headed reports whether all of the frame's head but the masking key has come.
func (f *Frames) headed() bool {
	if f.have < 2 {
		return false
	}
	switch f.head[1] & lengthMask {
	case length16:
		return f.have == 4
	case length64:
		return f.have == 10
	}
	return f.have == 2
}

// beginFrame reads the head of a frame.
func (f *Frames) beginFrame() {
	switch n := f.head[1] & lengthMask; n {
	case length16:
		f.payload = uint64(binary.BigEndian.Uint16(f.head[2:]))
	case length64:
		f.payload = binary.BigEndian.Uint64(f.head[2:])
		f.lost = f.payload > 1<<63-1
	default:
		f.payload = uint64(n)
	}
	if f.head[1]&maskBit != 0 && !f.lost {
		f.payload += 4
	}
}

// AppendClose appends a server's close frame with a code and at most 123 bytes of the reason.
func AppendClose(b []byte, code uint16, reason string) []byte {
	reason = reason[:min(len(reason), maxControl-2)]
	b = append(b, finBit|opcodeClose, byte(2+len(reason)))
	b = binary.BigEndian.AppendUint16(b, code)
	return append(b, reason...)
}
