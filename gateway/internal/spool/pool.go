// Package spool buffers bytes between a writer and readers of different speeds: the first bytes in
// memory, the others in a temporary file. pool.go bounds what all spools take together, and
// account.go those of one client; spool.go is the writer's side, reader.go the readers'.
package spool

import (
	"cmp"
	"fmt"
	"math"
	"os"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/keyway-go/keyway/gateway/internal/conns"
)

// Config configures a [Pool]. A number of 0 stands for the default; none is negative. The bounds except
// PerSpool are those of all spools together.
type Config struct {
	Memory   int64 // bounds the bytes in memory; default 64 MiB
	Files    int64 // bounds the bytes in temporary files; default: DefaultFiles of Dir
	PerSpool int64 // bounds the bytes of one spool; default 1 GiB
	Shares   int64 // equal parts of each resource; a client may use one of them; default 1

	// Dir is where temporary files are. Default: [os.TempDir]; if no file can be
	// made there, spools are in memory only. If that is so in a directory that is
	// set here, it is an error of NewPool.
	Dir string
}

// DefaultFiles returns the default of Config.Files for a Config.Dir.
func DefaultFiles(dir string) int64 {
	return max(1, min(4<<30, freeBytes(cmp.Or(dir, os.TempDir()))/2))
}

// How much memory a spool takes: firstMemory, then so many times what it has, up to mostMemory
// where there can be files.
const (
	firstMemory = 4 << 10
	growth      = 4
	mostMemory  = 64 << 10
)

// mostFiles returns how many temporary files there may be at one time: an eighth of the files that
// the process may have open (RLIMIT_NOFILE), and 4096 at most.
func mostFiles() int64 { return max(1, int64(min(4096, conns.MaxOpenFiles()/8))) }

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
	files  bool  // can be made
	bounds [resources]int64
	used   [resources]atomic.Int64

	mu      sync.Mutex
	clients map[charge]int64 // guarded by mu

	create func() (*os.File, error) // makes a file without a name
}

// NewPool returns a pool, or an error that says why no file can be made in Config.Dir.
func NewPool(cfg Config) (*Pool, error) {
	dir := cmp.Or(cfg.Dir, os.TempDir())
	cfg.PerSpool, cfg.Shares = cmp.Or(cfg.PerSpool, 1<<30), cmp.Or(cfg.Shares, 1)
	bounds := [resources]int64{cmp.Or(cfg.Memory, 64<<20), cmp.Or(cfg.Files, DefaultFiles(cfg.Dir)), mostFiles()}
	p := &Pool{cfg: cfg, dir: dir, head: mostMemory, files: true, bounds: bounds, clients: make(map[charge]int64)}
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
	remove(f)
	return nil
}

// InUse returns how much of a resource is taken.
func (p *Pool) InUse(r Resource) int64 { return p.used[r].Load() }

// named says that files have a name for as long as they are open: the system takes away none of an open
// file.
const named = runtime.GOOS == "windows"

// create makes a file that ends with its descriptor. Other processes cannot open it, unless it is named.
func create(dir string) (*os.File, error) {
	f, err := os.CreateTemp(dir, "keyway-*")
	if err != nil || named {
		return f, err
	}
	if err := os.Remove(f.Name()); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

func remove(f *os.File) {
	f.Close()
	if named {
		_ = os.Remove(f.Name()) // should that fail, it is left to whoever cleans the directory
	}
}
