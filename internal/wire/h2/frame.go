package h2

import "encoding/binary"

// preface is what a client sends first (RFC 9113, section 3.4).
const preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

// frameKind is a frame's type (RFC 9113, section 6).
type frameKind uint8

const (
	frameData frameKind = iota
	frameHeaders
	framePriority
	frameReset
	frameSettings
	framePushPromise
	framePing
	frameGoAway
	frameWindowUpdate
	frameContinuation
)

// Flags of frames.
const (
	flagEndStream  = 0x1
	flagAck        = 0x1
	flagEndHeaders = 0x4
	flagPadded     = 0x8
	flagPriority   = 0x20
)

// Parameters of SETTINGS.
const (
	settingTableSize     = 1
	settingPush          = 2
	settingMaxStreams    = 3
	settingInitialWindow = 4
	settingMaxFrame      = 5
	settingMaxHeaderList = 6
)

const (
	frameHeaderLen = 9
	maxFrame       = 16 << 10 // payload of a frame, both ways: nobody has to take more
	maxWindow      = 1<<31 - 1
	maxID          = 1<<31 - 1
	defaultWindow  = 1<<16 - 1
)

// Code says why a stream or a connection ended (RFC 9113, section 7).
type Code uint32

// Codes of errors.
const (
	NoError Code = iota
	ProtocolError
	InternalError
	FlowControlError
	SettingsTimeout
	StreamClosed
	FrameSizeError
	RefusedStream
	Cancel
	CompressionError
	ConnectError
	EnhanceYourCalm
)

// connError ends a connection.
type connError struct {
	code Code
	why  string // goes to the client
}

func (e *connError) Error() string { return "h2: " + e.why }

func fatal(code Code, why string) error { return &connError{code, why} }

// frame is the head of a frame.
type frame struct {
	length int
	kind   frameKind
	flags  uint8
	stream uint32
}

func (f frame) has(flag uint8) bool { return f.flags&flag != 0 }

func parseFrame(b []byte) frame {
	return frame{
		length: int(b[0])<<16 | int(b[1])<<8 | int(b[2]),
		kind:   frameKind(b[3]),
		flags:  b[4],
		stream: binary.BigEndian.Uint32(b[5:]) & maxID,
	}
}

func appendFrame(b []byte, f frame) []byte {
	b = append(b, byte(f.length>>16), byte(f.length>>8), byte(f.length), byte(f.kind), f.flags)
	return binary.BigEndian.AppendUint32(b, f.stream)
}

func appendWord(b []byte, kind frameKind, stream, n uint32) []byte {
	return binary.BigEndian.AppendUint32(appendFrame(b, frame{length: 4, kind: kind, stream: stream}), n)
}

func appendSetting(b []byte, id uint16, value uint32) []byte {
	return binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint16(b, id), value)
}

func unpad(f frame, p []byte) ([]byte, bool) {
	if !f.has(flagPadded) {
		return p, true
	}
	if len(p) == 0 || int(p[0]) > len(p)-1 {
		return nil, false
	}
	return p[1 : len(p)-int(p[0])], true
}
