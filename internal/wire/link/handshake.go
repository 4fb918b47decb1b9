package link

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"strconv"
)

// handshake is the exchange of hellos and proofs, at one end of a connection.
type handshake struct {
	cfg     *Config
	in      *reader
	out     io.Writer
	purpose purpose // the server's is that of the client's hello

	sees string // at the server's end: the client's address

	mine, peer settings
	sent, got  []byte // the payloads of the hellos
}

// helloLimit bounds the payloads of hello and proof frames.
const helloLimit = 1 << 10

func (c *Config) settings() settings {
	return settings{
		digest:  c.Digest,
		cluster: c.Cluster,
		streams: int64(c.MaxStreams),
		header:  int64(c.MaxHeaderBytes),
		store:   c.Store(),
	}
}

// asClient greets the server and judges its answer. The frame that it returns has to
// be sent first of all. If the settings differ it has been sent, so that the server
// can say so, too.
func (hs *handshake) asClient() (proof []byte, err error) {
	hs.mine = hs.cfg.settings()
	if err := hs.writeHello(clientGreets, ""); err != nil {
		return nil, err
	}
	hello, err := hs.readHello()
	if err != nil {
		return nil, err
	}
	signed := len(hs.got) - len(appendString(nil, hello.proof))
	switch {
	case hello.version != Version || hello.proves != hs.proves():
		return nil, hs.differs(&hello)
	case hs.proves() && !verifies(hs.cfg.Secrets, hello.proof, serverProves, hs.sent, hs.got[:signed]):
		return nil, otherKey("the server does not know this member's key, or has another one")
	}
	if hs.peer, err = decodeSettings(hello.settings); err != nil {
		return nil, protocolError("%v", err)
	}
	m := proven{settings: string(hs.mine.append(nil))}
	if hs.proves() {
		m.proof = prove(hs.cfg.Secrets[0], clientProves, hs.sent, hs.got, []byte(m.settings))
	}
	proof = appendFrame(nil, header{kind: kindProof}, m.append(nil))
	if err = match(&hs.mine, &hs.peer); err != nil {
		_, _ = hs.out.Write(proof)
	}
	return proof, err
}

// asServer answers the client's hello, unless it is none of a member's, and judges
// its proof. greeted is called when the hello is known to be a member's.
func (hs *handshake) asServer(greeted func()) error {
	hs.mine = hs.cfg.settings()
	hs.mine.sees = hs.sees
	hello, err := hs.readHello()
	if err != nil {
		return err
	}
	hs.purpose = hello.purpose
	signed := len(hs.got) - len(appendString(nil, hello.proof))
	switch {
	case hello.version != Version || hello.proves != hs.proves():
		err = hs.differs(&hello)
	case hs.proves() && !verifies(hs.cfg.Secrets, hello.proof, clientGreets, hs.got[:signed]):
		err = otherKey("the client has another one")
	}
	if err != nil {
		refusal := hs.greeting() // which tells nothing but why there is no other hello
		_ = hs.write(refusal.append(nil))
		return err
	}
	greeted()
	if err := hs.writeHello(serverProves, string(hs.mine.append(nil))); err != nil {
		return err
	}
	return hs.readProof()
}

func (hs *handshake) proves() bool { return len(hs.cfg.Secrets) > 0 }

// differs says in what a hello differs from this end's.
func (hs *handshake) differs(peer *hello) error {
	const none, some = "none", "there is one"
	switch {
	case peer.version != Version:
		return &MismatchError{"version", fmt.Sprint(Version), fmt.Sprint(peer.version), "run the same version of Keyway on both"}
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

func (hs *handshake) greeting() hello {
	h := hello{version: Version, proves: hs.proves(), purpose: hs.purpose}
	_, _ = rand.Read(h.nonce[:]) // never fails
	return h
}

func (hs *handshake) writeHello(r role, settings string) error {
	h := hs.greeting()
	h.settings = settings
	if hs.proves() {
		parts := [][]byte{h.appendSigned(nil)}
		if r == serverProves {
			parts = [][]byte{hs.got, parts[0]}
		}
		h.proof = prove(hs.cfg.Secrets[0], r, parts...)
	}
	hs.sent = h.append(nil)
	return hs.write(hs.sent)
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
	hs.got = append([]byte(nil), p...)
	h, err := decodeHello(p)
	if err != nil {
		return hello{}, protocolError("%v", err)
	}
	return h, nil
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
	m, err := decodeProven(p)
	if err != nil {
		return protocolError("%v", err)
	}
	if hs.proves() && !verifies(hs.cfg.Secrets, m.proof, clientProves, hs.got, hs.sent, []byte(m.settings)) {
		return otherKey("the client's proof is none of this connection's")
	}
	if hs.peer, err = decodeSettings(m.settings); err != nil {
		return protocolError("%v", err)
	}
	return match(&hs.mine, &hs.peer)
}

func (hs *handshake) payload(k kind) ([]byte, error) {
	h, err := hs.in.header()
	if err == nil && (h.kind != k || h.length > helloLimit) {
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
