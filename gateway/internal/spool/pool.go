// Package spool buffers bytes between a writer and readers of different speeds: the first bytes in
// memory, the others in a temporary file. pool.go bounds what all spools take together, and
// account.go those of one client; spool.go is the writer's side, reader.go the readers'.
package spool

import (
	"cmp"
	"fmt"
	"math"
	"os"
	"sync"
	"sync/atomic"

	"github.com/keyway-go/keyway/gateway/internal/conns"
	"github.com/keyway-go/keyway/gateway/internal/hop"
)

// Config configures a [Pool]. A number of 0 stands for the default; a negative one
// is an error of [NewPool].
type Config struct {
	// Memory bounds the bytes in memory, of all spools together. Default 64 MiB.
	Memory int64

	// Files bounds the bytes in temporary files, of all spools together. Default: 4 GiB, or half of
	// the free space in Dir if that is less.
	Files int64

	// OpenFiles bounds the temporary files at one time. Default: an eighth of the
	// files that the process may have open (RLIMIT_NOFILE), and 4096 at most.
	OpenFiles int64

	// PerSpool bounds the bytes of one spool. Default 1 GiB.
	PerSpool int64

	// Head is how many bytes of one spool are in memory before the others go to a
	// file. Default 64 KiB.
	Head int64

	// Shares is the number of equal parts of each resource. A client may use one of them. Default
	// 1.
	Shares int64

	// Dir is where temporary files are. Default: [os.TempDir]; if no file can be
	// made there, spools are in memory only. If that is so in a directory that is
	// set here, it is an error of NewPool.
	Dir string
}

// complete returns c with defaults for fields that are 0, and an error if a field is negative.
func (c Config) complete() (_ Config, err error) {
	hop.Default(&err, "spool: Config.Memory", &c.Memory, 64<<20)
	hop.Default(&err, "spool: Config.Files", &c.Files, DefaultFiles(c.Dir))
	hop.Default(&err, "spool: Config.OpenFiles", &c.OpenFiles, max(1, int64(min(4096, conns.MaxOpenFiles()/8))))
	hop.Default(&err, "spool: Config.PerSpool", &c.PerSpool, 1<<30)
	hop.Default(&err, "spool: Config.Head", &c.Head, 64<<10)
	hop.Default(&err, "spool: Config.Shares", &c.Shares, 1)
	return c, err
}

// DefaultFiles returns the default of Config.Files for a Config.Dir.
func DefaultFiles(dir string) int64 {
	return max(1, min(4<<30, freeBytes(cmp.Or(dir, os.TempDir()))/2))
}

// How much memory a spool takes: firstMemory, then so many times what it has.
const (
	firstMemory = 4 << 10
	growth      = 4
)

// Resource is what spools take.
type Resource int

// The resources: bytes, or a number of files.
const (
	Memory Resource = iota // bytes in memory
	Disk                   // bytes in files
	Files                  // files

	resources
)

// Pool is what spools have in common: their bounds, and the directory of their files. Make one with
// [NewPool]. Once spools exist only used and clients change, as their accounts take and give.
type Pool struct {
	cfg    Config
	dir    string
	head   int64 // bytes in memory of one spool
	files  bool  // files can be made
	bounds [resources]int64
	used   [resources]atomic.Int64

	mu      sync.Mutex
	clients map[charge]int64 // guarded by mu

	create func() (*os.File, error) // makes a file without a name
	remove func(*os.File)           // ends one
}

// NewPool returns a pool, or an error that names the field of Config that is out of
// range, or why no file can be made in Config.Dir.
func NewPool(cfg Config) (*Pool, error) {
	dir := cmp.Or(cfg.Dir, os.TempDir())
	cfg, err := cfg.complete()
	if err != nil {
		return nil, err
	}
	p := &Pool{cfg: cfg, dir: dir, head: cfg.Head, files: true, bounds: [resources]int64{cfg.Memory, cfg.Files, cfg.OpenFiles}, clients: make(map[charge]int64), remove: remove}
	p.create = func() (*os.File, error) { return create(dir) }
	if err := p.Usable(); err != nil {
		if cfg.Dir != "" {
			return nil, err
		}
		p.files, p.head = false, math.MaxInt64
	}
	return p, nil
}

// Usable tries to make a temporary file, and returns why that fails. Then, if
// Config.Dir is empty, spools are in memory only.
func (p *Pool) Usable() error {
	f, err := p.create()
	if err != nil {
		return fmt.Errorf("spool: no temporary files in %s: %w", p.dir, err)
	}
	p.remove(f)
	return nil
}

// InUse returns how much of a resource is taken.
func (p *Pool) InUse(r Resource) int64 { return p.used[r].Load() }

// create makes a file that other processes cannot open, and that ends with its last user.
func create(dir string) (*os.File, error) {
	f, err := os.CreateTemp(dir, "keyway-*")
	if err == nil {
		err = unlink(f)
	}
	if err != nil {
		return nil, err
	}
	return f, nil
}
