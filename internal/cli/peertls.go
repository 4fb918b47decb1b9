package cli

import (
	"cmp"
	"log/slog"

	"github.com/keyway-go/keyway/gateway"
)

// peerTLS holds the flags of TLS between members.
type peerTLS struct {
	config gateway.PeerTLSConfig
	files  *Files
}

func (p *peerTLS) define(f *Flags) {
	f.String(&p.config.CertFile, "peer-cert", "", "`file` with this member's certificate chain in PEM, for TLS between members: all members need one, or none. It must be valid for servers and clients. Needs --peer-key and --peer-ca; the three are read again when they change, and on SIGHUP")
	f.String(&p.config.KeyFile, "peer-key", "", "`file` with the private key of --peer-cert in PEM")
	f.String(&p.config.CAFile, "peer-ca", "", "`file` with the certificates in PEM of the CAs that sign members' certificates")
	f.Bool(&p.config.Optional, "peer-tls-optional", "with --peer-cert, speak with members that have no TLS, too; for changing a running cluster to TLS, or from it")
	f.String(&p.config.Name, "peer-name", "", "DNS `name` that the certificate of each member must have. Default: any certificate that --peer-ca signed is a member's, so that CA must be the cluster's own")
}

// load reads the files that the flags name, if they do.
func (p *peerTLS) load() (*gateway.PeerTLS, error) {
	given := cmp.Or(p.config.CertFile, p.config.KeyFile, p.config.CAFile, p.config.Name) != "" || p.config.Optional
	whole := p.config.CertFile != "" && p.config.KeyFile != "" && p.config.CAFile != ""
	switch {
	case !given:
		return nil, nil
	case !whole:
		return nil, Usagef("--peer-cert, --peer-key and --peer-ca need each other, and --peer-name and --peer-tls-optional need them")
	}
	p.files = NoteFiles(p.config.CertFile, p.config.KeyFile, p.config.CAFile)
	peers, err := gateway.LoadPeerTLS(p.config)
	if err != nil {
		return nil, Usagef("--peer-cert, --peer-key, --peer-ca: %v", err)
	}
	return peers, nil
}

// FollowPeerTLS follows the files of TLS between members, see [Common.FollowCertificate].
func (c *Common) FollowPeerTLS(logger *slog.Logger) {
	if c.PeerTLS != nil {
		c.FollowCertificate(c.peer.files, c.PeerTLS, logger)
	}
}
