package link

import (
	"encoding/json"
	"fmt"
	"strconv"
)

// hello is the text of a hello frame. It holds what a peer may learn before it has proven that it
// is a member, and the server's settings for a client that has. If the version is another one,
// everything else may differ.
type hello struct {
	Version  int       `json:"version"`
	Proves   bool      `json:"proves"` // the sender has secrets
	Plain    bool      `json:"plain"`  // the connection is for HTTP/1.1; the server's is the client's
	Nonce    string    `json:"nonce"`
	Settings *settings `json:"settings,omitempty"` // of the server; nil in a client's, and for a client that the server refuses
}

func decodeHello(text []byte) (h hello, err error) {
	if err := json.Unmarshal(text, &h); h.Version == 0 || h.Version == Version && err != nil {
		return h, protocolError("hello: %v", errMalformed)
	}
	return h, nil
}

// settings are what members must have in common, and the bounds of one end.
type settings struct {
	Digest  uint64 `json:"digest"`
	Cluster string `json:"cluster"`
	Streams int64  `json:"streams"` // requests at once that the sender takes
	Header  int64  `json:"header"`  // bytes of a head that the sender takes
	Store   uint64 `json:"store"`   // identity of the sender's store; 0 if it is not known

	Sees string `json:"sees,omitempty"` // of a server: the client's address as it sees it
}

func match(mine, peer *settings) error {
	hex := func(n uint64) string { return fmt.Sprintf("%016x", n) }
	switch {
	case peer.Cluster != mine.Cluster:
		return &MismatchError{"cluster", strconv.Quote(mine.Cluster), strconv.Quote(peer.Cluster), "give both the same --cluster"}
	case peer.Digest != mine.Digest:
		return &MismatchError{"configuration digest", hex(mine.Digest), hex(peer.Digest), "give both the same --session-ttl, --partitions and other ring settings"}
	case peer.Store != 0 && mine.Store != 0 && peer.Store != mine.Store:
		return &MismatchError{"store", hex(mine.Store), hex(peer.Store), "give all members of a cluster the same --store or --redis"}
	}
	return nil
}
