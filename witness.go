package keyway

import (
	"context"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/keyway-go/keyway/internal/lockfile"
	"github.com/keyway-go/keyway/internal/wake"
)

const (
	witnessEvery = 50 * time.Millisecond
	globEvery    = 20 // looks; also the pause after a release that failed
	maxWitnessed = 8  // files of others
	maxDead      = 3  // of a process's latest incarnations: each but the last has lost its session
)

// witness looks at the lock files of Config.Witness until ctx ends. Only the
// kernel's word counts: a lock that is free. The incarnations of its file are taken off
// the ring at once, and released when their app has had its grace, or has ended. A dead process
// stays dead, so the lock need not be held meanwhile.
func (n *Node) witness(ctx context.Context) {
	boot := lockfile.BootID()
	dying := make(map[string]*death)
	var paths []string
	for look := 0; wake.Sleep(witnessEvery, ctx.Done()); look++ {
		if look%globEvery == 0 {
			paths = n.neighbours()
		}
		for _, path := range paths {
			dead, err := lockfile.Witness(path, boot)
			if err != nil {
				continue // it was removed: the TTL decides
			}
			for _, d := range dead[max(0, len(dead)-maxDead):] {
				if dying[d.ID] == nil {
					dying[d.ID] = n.bury(path, d)
				}
				n.testify(ctx, d, dying[d.ID])
			}
		}
	}
}

// neighbours returns the files to look at, so that those of a machine watch each other in a ring.
func (n *Node) neighbours() []string {
	paths, _ := filepath.Glob(n.cfg.Witness) // complete has checked the pattern
	own, _ := filepath.Abs(n.cfg.LockFile)
	next, found := slices.BinarySearchFunc(paths, own, func(path, own string) int {
		abs, _ := filepath.Abs(path)
		return strings.Compare(abs, own)
	})
	if found {
		paths = slices.Delete(paths, next, next+1)
	}
	return slices.Concat(paths[next:], paths[:next])[:min(len(paths), maxWitnessed)]
}

// death is a dead incarnation whose keys are taken over.
type death struct {
	found    time.Time
	tried    time.Time // when the store was told last
	released bool
}

// bury takes a dead incarnation off the ring.
func (n *Node) bury(path string, d lockfile.Dead) *death {
	if m, ok := n.members.View().Find(d.ID); ok {
		n.log.Warn("a worker of this machine has died: its keys are taken over", "worker", m.Name, "incarnation", d.ID, "lock_file", path, "after", d.Grace)
	}
	n.members.Bury([]string{d.ID})
	return &death{found: time.Now()}
}

// testify has the keys of a dead incarnation taken over once its app has ended.
func (n *Node) testify(ctx context.Context, d lockfile.Dead, at *death) {
	if at.released || time.Since(at.found) < d.Grace || time.Since(at.tried) < globEvery*witnessEvery {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, n.members.Settings().TTL/5)
	defer cancel()
	at.tried = time.Now()
	at.released = n.store.Release(ctx, d.ID) == nil
}
