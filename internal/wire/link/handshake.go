package link

import (
	"bytes"
	"cmp"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
)

// handshake is the exchange of hellos and proofs, at one end of a connection.
type handshake struct {
	cfg   *Config
	in    *reader
	out   io.Writer
	plain bool   // the connection is for HTTP/1.1; the client says so
	sees  string // at the server's end: the client's address

	mine, peer settings
	sent, got  []byte // the payloads of the hellos
}

// helloLimit bounds the payloads of hello and proof frames. Each begins with a proof of what
// follows, a text in JSON; it is zero if the sender has no secrets, or refuses its peer.
const helloLimit = 1 << 10

func (c *Config) settings() settings {
	return settings{
		Digest:  c.Digest,
		Cluster: c.Cluster,
		Streams: int64(c.MaxStreams),
		Header:  int64(c.MaxHeaderBytes),
		Store:   c.Store(),
	}
}

// asClient greets the server, judges its answer, and sends the client's proof. It does so even if
// the settings differ, so that the server can say so, too.
func (hs *handshake) asClient() error {
	hs.mine = hs.cfg.settings()
	hs.sent = hs.seal(clientGreets, hs.greeting())
	if err := hs.write(hs.sent); err != nil {
		return err
	}
	hello, err := hs.readHello()
	switch {
	case err != nil:
		return err
	case hello.Version != Version || hello.Proves != hs.proves():
		return hs.differs(&hello)
	case !hs.verifies(hs.got, serverProves, hs.sent):
		return otherKey("the server does not know this member's key, or has another one")
	case hello.Settings == nil:
		return protocolError("a hello without settings")
	}
	hs.peer = *hello.Settings
	_, err = hs.out.Write(appendFrame(nil, header{kind: kindProof}, hs.seal(clientProves, &hs.mine, hs.sent, hs.got)))
	return cmp.Or(match(&hs.mine, &hs.peer), err)
}

// asServer answers the client's hello, unless it is none of a member's, and judges
// its proof. greeted is called when the hello is known to be a member's.
func (hs *handshake) asServer(greeted func()) error {
	hs.mine = hs.cfg.settings()
	hs.mine.Sees = hs.sees
	hello, err := hs.readHello()
	if err != nil {
		return err
	}
	hs.plain = hello.Plain
	answer := hs.greeting()
	switch {
	case hello.Version != Version || hello.Proves != hs.proves():
		err = hs.differs(&hello)
	case !hs.verifies(hs.got, clientGreets):
		err = otherKey("the client has another one")
	}
	if err != nil {
		_ = hs.write(unproven(answer)) // which tells nothing but why there is no other hello
		return err
	}
	greeted()
	answer.Settings = &hs.mine
	hs.sent = hs.seal(serverProves, answer, hs.got)
	if err := hs.write(hs.sent); err != nil {
		return err
	}
	return hs.readProof()
}

func (hs *handshake) proves() bool { return len(hs.cfg.Secrets) > 0 }

// differs says in what a hello differs from this end's.
func (hs *handshake) differs(peer *hello) error {
	const none, some = "none", "there is one"
	switch {
	case peer.Version != Version:
		return &MismatchError{"version", fmt.Sprint(Version), fmt.Sprint(peer.Version), "run the same version of Keyway on both"}
	case hs.proves():
		return &MismatchError{whatKey, some, none, "give the peer the same --gossip-key (gossip.Config.Keyring) as all members"}
	default:
		return &MismatchError{whatKey, none, some, "give this member the same --gossip-key (gossip.Config.Keyring) as all members"}
	}
}

const whatKey = "gossip key"

func otherKey(which string) error {
	return &MismatchError{whatKey, "there is one", which, "give all members the same --gossip-key (gossip.Config.Keyring); a new one comes last in the list until all have it"}
}

func (hs *handshake) greeting() *hello {
	return &hello{Version: Version, Proves: hs.proves(), Plain: hs.plain, Nonce: rand.Text()}
}

// unproven returns the payload with the text of v and no proof.
func unproven(v any) []byte {
	text, _ := json.Marshal(v) // which fails for no hello and no settings
	return append(make([]byte, proofLen), text...)
}

// seal returns the payload with the text of v. If this end has secrets, it proves that text and all
// that came before.
func (hs *handshake) seal(r role, v any, before ...[]byte) []byte {
	p := unproven(v)
	if hs.proves() {
		copy(p, prove(hs.cfg.Secrets[0], r, append(before, p[proofLen:])...))
	}
	return p
}

// verifies reports whether a payload has the proof that seal gives it, or this end has no secrets.
func (hs *handshake) verifies(p []byte, r role, before ...[]byte) bool {
	return !hs.proves() || verifies(hs.cfg.Secrets, string(p[:proofLen]), r, append(before, p[proofLen:])...)
}

func (hs *handshake) write(payload []byte) error {
	_, err := hs.out.Write(appendFrame([]byte(preface), header{kind: kindHello}, payload))
	return err
}

// readHello reads the peer's preface and hello. Bytes that are not the link's
// yield ErrNoLink.
func (hs *handshake) readHello() (hello, error) {
	p, err := hs.in.next(len(preface))
	if err != nil && bytes.HasPrefix(hs.in.arrived(), []byte(wantsTLS)) {
		return hello{}, errTLSThere
	}
	if err != nil {
		return hello{}, fmt.Errorf("link: waiting for the peer's hello: %w", explainTLS(err))
	}
	if string(p) != preface {
		return hello{}, fmt.Errorf("%w: it said %s", ErrNoLink, strconv.Quote(string(p)))
	}
	if p, err = hs.payload(kindHello); err != nil {
		return hello{}, err
	}
	hs.got = bytes.Clone(p)
	return decodeHello(p[proofLen:])
}

// readProof reads and judges the client's proof and settings.
func (hs *handshake) readProof() error {
	p, err := hs.payload(kindProof)
	if hs.proves() && errors.Is(err, io.ErrUnexpectedEOF) {
		return otherKey("the client has left: perhaps it does not know that one")
	}
	if err != nil {
		return err
	}
	if !hs.verifies(p, clientProves, hs.got, hs.sent) {
		return otherKey("the client's proof is none of this connection's")
	}
	if json.Unmarshal(p[proofLen:], &hs.peer) != nil {
		return protocolError("settings: %v", errMalformed)
	}
	return match(&hs.mine, &hs.peer)
}

func (hs *handshake) payload(k kind) ([]byte, error) {
	h, err := hs.in.header()
	if err == nil && (h.kind != k || h.length < proofLen || h.length > helloLimit) {
		return nil, protocolError("%v frame of %d bytes in place of %v", h.kind, h.length, k)
	}
	var p []byte
	if err == nil {
		p, err = hs.in.next(h.length)
	}
	if err != nil {
		return nil, fmt.Errorf("link: waiting for the peer's %v: %w", k, noEOF(err))
	}
	return p, nil
}
