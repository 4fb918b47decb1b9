package cli

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// lookEvery is how often a program looks whether files have changed.
const lookEvery = time.Second

// Files are files, and folders of files, that a program reads again when they change.
type Files struct {
	names []string
	seen  []os.FileInfo // nil for one that is not there
}

// NoteFiles records the state of files before they are first read, so that later changes are
// detected.
func NoteFiles(names ...string) *Files {
	f := &Files{names: names}
	f.changed()
	return f
}

// changed reports whether one of the files is another one than when it was last called.
func (f *Files) changed() bool {
	var now []os.FileInfo
	for _, name := range f.names {
		info, _ := os.Stat(name)
		now = append(now, info)
		entries, _ := os.ReadDir(name) // none of a file
		for _, e := range entries {
			info, _ := os.Stat(filepath.Join(name, e.Name()))
			now = append(now, info)
		}
	}
	same := slices.EqualFunc(f.seen, now, func(a, b os.FileInfo) bool {
		if a == nil || b == nil {
			return a == nil && b == nil
		}
		return os.SameFile(a, b) && a.ModTime().Equal(b.ModTime()) && a.Size() == b.Size()
	})
	f.seen = now
	return !same
}

// follow calls the looks every second, and with hangup set on SIGHUP, until ctx ends.
func (c *Common) follow(ctx context.Context, hangups <-chan os.Signal, logger *slog.Logger) {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		hangup := false
		select {
		case <-ctx.Done():
			return
		case <-hangups:
			hangup = true
		case <-tick.C:
		}
		c.mu.Lock()
		if hangup && len(c.looks) == 0 {
			logger.Info("SIGHUP is ignored: no setting can be reloaded; send SIGTERM to end the process")
		}
		for _, look := range c.looks {
			look(hangup)
		}
		c.mu.Unlock()
	}
}

// OnLook lets look be called every second, and with hangup set on SIGHUP, until the stop of
// [Common.Logger] is called.
func (c *Common) OnLook(look func(hangup bool)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.looks = append(c.looks, look)
}

// Follow calls reload when one of the files has changed, and on SIGHUP, see [Common.OnLook].
func (c *Common) Follow(f *Files, reload func()) {
	c.OnLook(func(hangup bool) {
		if f.changed() || hangup {
			reload()
		}
	})
}

// Certificate is a certificate that is read from files.
type Certificate interface {
	Reload() error      // reads the files again; with an error nothing changes
	Expires() time.Time // when it ends
}

// FollowCertificate reads a certificate again when its files change, and on SIGHUP, see
// [Common.OnLook]. It warns every hour if the certificate ends within a day.
func (c *Common) FollowCertificate(f *Files, cert Certificate, logger *slog.Logger) {
	files := slog.String("files", strings.Join(f.names, " "))
	var warned time.Time
	c.OnLook(func(hangup bool) {
		if f.changed() || hangup {
			if err := cert.Reload(); err != nil {
				logger.Error("the certificate cannot be reloaded: the old one stays in force", files, "error", err)
			} else {
				logger.Info("the certificate is in force", files, "ends", cert.Expires())
				warned = time.Time{}
			}
		}
		if now := time.Now(); cert.Expires().Sub(now) < 24*time.Hour && now.Sub(warned) >= time.Hour {
			logger.Warn("the certificate expires within a day, or has expired: peers refuse an expired one, so replace the file", files, "ends", cert.Expires())
			warned = now
		}
	})
}
