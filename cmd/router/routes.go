package main

import (
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/keyway-go/keyway/gateway/router"
	"github.com/keyway-go/keyway/internal/cli"
	"github.com/keyway-go/keyway/internal/routes"
	"github.com/keyway-go/keyway/internal/status"
)

// routesFile is the file of --routes, and what of it is in force.
type routesFile struct {
	name  string
	files *cli.Files

	mu     sync.Mutex // guards what follows
	loaded time.Time  // when what is in force came
	err    error      // why what was read last is not in force
}

func (f *routesFile) load() (*routes.Table, error) {
	f.files = cli.NoteFiles(f.name)
	return router.LoadRoutes(f.name)
}

func (f *routesFile) note(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err = err; err == nil {
		f.loaded = time.Now()
	}
}

// status returns what is in force of a router whose file it is.
func (f *routesFile) status(rt *router.Router) status.RoutesStatus {
	table := rt.Routes()
	f.mu.Lock()
	defer f.mu.Unlock()
	s := status.RoutesStatus{File: f.name, Digest: fmt.Sprintf("%016x", table.Digest()), Loaded: f.loaded}
	if f.err != nil {
		s.Error = oneLine(f.err)
	}
	for _, r := range table.Routes() {
		s.Names = append(s.Names, r.Name)
	}
	return s
}

// followRoutes puts the file in force when it changes, and on SIGHUP, until stop is called.
// With mistakes, or with other keys than those in force, it changes nothing.
func (o *options) followRoutes(rt *router.Router, logger *slog.Logger) (stop func()) {
	f := &o.routesFile
	f.note(nil)
	if f.name == "" {
		return func() {}
	}
	return o.Follow(f.files, func() { f.reload(rt, logger) })
}

// reload reads the file and puts it in force.
func (f *routesFile) reload(rt *router.Router, logger *slog.Logger) {
	table, err := router.LoadRoutes(f.name)
	if err == nil {
		err = rt.SetRoutes(table)
	}
	f.note(err)
	if err != nil {
		logger.Error("the routes stay as they are", "file", f.name, "error", oneLine(err))
		return
	}
	logger.Info("routes are in force", "file", f.name, "routes", len(table.Routes()), "digest", fmt.Sprintf("%016x", table.Digest()))
}

// oneLine returns the text of an error that may have several lines.
func oneLine(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }
