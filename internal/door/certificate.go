package door

import (
	"crypto/tls"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/keyway-go/keyway/internal/cli"
)

// certificate is that of --tls-cert and --tls-key, or those of a folder. It implements
// [cli.Certificate].
type certificate struct {
	certFile, keyFile string
	files             *cli.Files
	loaded            atomic.Pointer[[]tls.Certificate] // one at least
}

func (c *certificate) given() bool { return c.certFile != "" }

// load reads it for the first time, if there is one.
func (c *certificate) load() error {
	if !c.given() {
		if c.keyFile != "" {
			return cli.Usagef("--tls-key needs --tls-cert")
		}
		return nil
	}
	c.files = cli.NoteFiles(c.certFile, c.keyFile)
	if err := c.Reload(); err != nil {
		return cli.Usagef("--tls-cert, --tls-key: %v", err)
	}
	return nil
}

func (c *certificate) Reload() error {
	pairs, err := c.pairs()
	if err != nil {
		return err
	}
	var all []tls.Certificate
	for _, p := range pairs {
		cert, err := tls.LoadX509KeyPair(p[0], p[1])
		if err != nil {
			return fmt.Errorf("%s: %w", p[0], err)
		}
		all = append(all, cert)
	}
	c.loaded.Store(&all)
	return nil
}

// pairs returns the files of each certificate and of its key.
func (c *certificate) pairs() (list [][2]string, err error) {
	if c.keyFile != "" {
		return [][2]string{{c.certFile, c.keyFile}}, nil
	}
	entries, err := os.ReadDir(c.certFile)
	for _, e := range entries {
		if name, ok := strings.CutSuffix(filepath.Join(c.certFile, e.Name()), ".crt"); ok {
			list = append(list, [2]string{name + ".crt", name + ".key"})
		}
	}
	if err == nil && len(list) == 0 {
		err = errors.New("it has none")
	}
	if err != nil {
		return nil, fmt.Errorf("without --tls-key, --tls-cert is a folder of files .crt and .key: %w", err)
	}
	return list, nil
}

func (c *certificate) Expires() time.Time {
	first := slices.MinFunc(*c.loaded.Load(), func(a, b tls.Certificate) int { return a.Leaf.NotAfter.Compare(b.Leaf.NotAfter) })
	return first.Leaf.NotAfter
}

// choose returns the first certificate that the client can take, by the name that it asks for and
// the algorithms that it knows, or else the first one of all.
func (c *certificate) choose(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	all := *c.loaded.Load()
	i := slices.IndexFunc(all, func(cert tls.Certificate) bool { return hello.SupportsCertificate(&cert) == nil })
	return &all[max(i, 0)], nil
}
