package link

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"strconv"
)

// nonceLen is the length of a nonce, proofLen that of a proof (HMAC-SHA-256).
const (
	nonceLen = 16
	proofLen = 32
)

// purpose is what a connection carries after the handshake.
type purpose uint8

const (
	purposeLink  purpose = iota // frames
	purposePlain                // HTTP/1.1
)

// hello is the payload of a hello frame. It holds what a peer may learn before it has proven that
// it is a member, and the server's settings for a client that has.
type hello struct {
	version  uint64
	proves   bool // the sender has secrets
	purpose  purpose
	nonce    [nonceLen]byte
	settings string // of the server, see settings; empty in a client's, and for a client that the server refuses
	proof    string // of all before it; empty where the sender has no secrets, and in a refusal
}

// appendSigned appends what the proof covers.
func (h *hello) appendSigned(b []byte) []byte {
	b = binary.AppendUvarint(b, h.version)
	proves := byte(0)
	if h.proves {
		proves = 1
	}
	b = append(b, proves, byte(h.purpose))
	b = append(b, h.nonce[:]...)
	return appendString(b, h.settings)
}

func (h *hello) append(b []byte) []byte { return appendString(h.appendSigned(b), h.proof) }

// decodeHello decodes p without keeping it. From a hello of another version it reads only the
// version number, since everything else may differ.
func decodeHello(p []byte) (hello, error) {
	d := decode(bytes.Clone(p))
	h := hello{version: d.Number(math.MaxUint64)}
	if d.Bad || h.version != Version {
		return h, malformedIf(d.Bad, "hello")
	}
	proves := d.Byte()
	h.proves, h.purpose = proves == 1, purpose(d.Byte())
	copy(h.nonce[:], d.Bytes(nonceLen))
	h.settings, h.proof = d.string(), d.string()
	return h, malformedIf(!d.Done() || proves > 1 || h.purpose > purposePlain || !isProof(h.proof), "hello")
}

func malformedIf(bad bool, what string) error {
	if bad {
		return fmt.Errorf("%s: %w", what, errMalformed)
	}
	return nil
}

// isProof reports whether s can be a proof, or is empty where there is none.
func isProof(s string) bool { return len(s) == 0 || len(s) == proofLen }

// proven is the payload of a proof frame.
type proven struct {
	settings string // of the client
	proof    string // of both hellos and of settings; empty where the client has no secrets
}

func (m *proven) append(b []byte) []byte { return appendString(appendString(b, m.settings), m.proof) }

// decodeProven decodes p, which the result does not share.
func decodeProven(p []byte) (proven, error) {
	d := decode(bytes.Clone(p))
	m := proven{settings: d.string(), proof: d.string()}
	return m, malformedIf(!d.Done() || !isProof(m.proof), "proof")
}

// settings are what members must have in common, and the bounds of one end.
type settings struct {
	digest  uint64
	cluster string
	streams int64  // requests at once that the sender takes
	header  int64  // bytes of a head that the sender takes
	store   uint64 // identity of the sender's store; 0 if it is not known

	sees string // of a server: the client's address as it sees it
}

func (s *settings) append(b []byte) []byte {
	b = binary.BigEndian.AppendUint64(b, s.digest)
	b = appendString(b, s.cluster)
	b = binary.AppendUvarint(b, uint64(s.streams))
	b = binary.AppendUvarint(b, uint64(s.header))
	b = binary.BigEndian.AppendUint64(b, s.store)
	return appendString(b, s.sees)
}

// decodeSettings decodes p, whose memory the result uses.
func decodeSettings(p string) (settings, error) {
	d := decode([]byte(p))
	s := settings{digest: d.Uint64(), cluster: d.string(), streams: d.int(), header: d.int(), store: d.Uint64(), sees: d.string()}
	return s, malformedIf(!d.Done(), "settings")
}

func match(mine, peer *settings) error {
	hex := func(n uint64) string { return fmt.Sprintf("%016x", n) }
	switch {
	case peer.cluster != mine.cluster:
		return &MismatchError{"cluster", strconv.Quote(mine.cluster), strconv.Quote(peer.cluster), "give both the same --cluster"}
	case peer.digest != mine.digest:
		return &MismatchError{"configuration digest", hex(mine.digest), hex(peer.digest), "give both the same --session-ttl, --partitions and other ring settings"}
	case peer.store != 0 && mine.store != 0 && peer.store != mine.store:
		return &MismatchError{"store", hex(mine.store), hex(peer.store), "give all members of a cluster the same --store or --redis"}
	}
	return nil
}
