package door

import (
	"crypto/tls"
	"sync/atomic"
	"time"

	"github.com/keyway-go/keyway/internal/cli"
)

// certificate is that of --tls-cert and --tls-key. It implements [cli.Certificate].
type certificate struct {
	certFile, keyFile string
	files             *cli.Files
	loaded            atomic.Pointer[tls.Certificate]
}

func (c *certificate) given() bool { return c.certFile != "" }

// load reads it for the first time, if there is one.
func (c *certificate) load() error {
	if (c.certFile == "") != (c.keyFile == "") {
		return cli.Usagef("--tls-cert and --tls-key need each other")
	}
	if !c.given() {
		return nil
	}
	c.files = cli.NoteFiles(c.certFile, c.keyFile)
	if err := c.Reload(); err != nil {
		return cli.Usagef("--tls-cert, --tls-key: %v", err)
	}
	return nil
}

func (c *certificate) Reload() error {
	cert, err := tls.LoadX509KeyPair(c.certFile, c.keyFile)
	if err == nil {
		c.loaded.Store(&cert)
	}
	return err
}

func (c *certificate) Expires() time.Time { return c.loaded.Load().Leaf.NotAfter }

func (c *certificate) serverConfig() *tls.Config {
	return &tls.Config{GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return c.loaded.Load(), nil }}
}
