package link

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
)

// proofLen is the length of a proof.
const proofLen = sha256.Size

// role names the prover and the subject, so that a proof cannot serve as another one.
type role string

const (
	clientGreets role = "keyway link: client's hello" // that the hello is one of a member's
	serverProves role = "keyway link: server"         // that the server is a member, here and now
	clientProves role = "keyway link: client"         // that the client is
)

func prove(secret []byte, r role, parts ...[]byte) string {
	m := hmac.New(sha256.New, secret)
	var size [4]byte
	for _, part := range append([][]byte{[]byte(r)}, parts...) {
		binary.BigEndian.PutUint32(size[:], uint32(len(part)))
		m.Write(size[:])
		m.Write(part)
	}
	return string(m.Sum(nil))
}

// verifies reports whether proof is the one of the parts by any of the secrets. It
// takes as long for each.
func verifies(secrets [][]byte, proof string, r role, parts ...[]byte) bool {
	known := false
	for _, secret := range secrets {
		if hmac.Equal([]byte(prove(secret, r, parts...)), []byte(proof)) {
			known = true
		}
	}
	return known
}
