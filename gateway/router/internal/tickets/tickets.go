// Package tickets has the session tickets of TLS, which spare a client that comes again most of a
// handshake.
package tickets

import (
	"crypto/hkdf"
	"crypto/sha256"
	"crypto/tls"
	"strconv"
	"sync/atomic"
	"time"
)

// Share makes the tickets of cfg good at every server with the same secrets, of 32 bytes each: the
// first one makes tickets, all take them. It changes nothing without secrets, or if cfg has tickets
// of its own or asks for clients' certificates, which cfg alone can judge.
//
// Only tickets of TLS 1.3 are shared. Each resumption of TLS 1.3 agrees on a new key, so that
// recorded traffic stays secret from a later owner of the secrets. TLS 1.2 does not, so crypto/tls
// draws and changes the keys of its tickets for this process alone.
func Share(cfg *tls.Config, secrets [][]byte) {
	if len(secrets) == 0 || cfg.ClientAuth != tls.NoClientCert || cfg.WrapSession != nil || cfg.UnwrapSession != nil {
		return
	}
	s := &shared{secrets: secrets}
	cfg.WrapSession = func(cs tls.ConnectionState, session *tls.SessionState) ([]byte, error) {
		return s.of(cs.Version).EncryptTicket(cs, session)
	}
	cfg.UnwrapSession = func(ticket []byte, cs tls.ConnectionState) (*tls.SessionState, error) {
		return s.of(cs.Version).DecryptTicket(ticket, cs)
	}
}

// shared has the keys of tickets.
type shared struct {
	secrets [][]byte
	own     tls.Config // for TLS 1.2
	today   atomic.Pointer[daily]
}

// daily has the keys on a day of UTC. It takes tickets of the day before and, since clocks differ, of
// the day after.
type daily struct {
	tls.Config
	day int64 // since 1970
}

// of returns the configuration that has the keys now for a version of TLS.
func (s *shared) of(version uint16) *tls.Config {
	if version != tls.VersionTLS13 {
		return &s.own
	}
	day := time.Now().Unix() / (24 * 60 * 60)
	now := s.today.Load()
	if now == nil || now.day != day {
		now = &daily{day: day}
		now.SetSessionTicketKeys(s.keys(day, day-1, day+1))
		s.today.Store(now)
	}
	return &now.Config
}

func (s *shared) keys(days ...int64) (keys [][32]byte) {
	for _, day := range days {
		for _, secret := range s.secrets {
			key, _ := hkdf.Expand(sha256.New, secret, strconv.FormatInt(day, 10), 32) // fails only of too long a key
			keys = append(keys, [32]byte(key))
		}
	}
	return keys
}
