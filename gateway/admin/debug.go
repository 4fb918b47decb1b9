package admin

import (
	"bytes"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime/pprof"
	"runtime/trace"
	"slices"
	"strconv"
	"time"
)

//go:embed openapi.yaml
var openAPI []byte

func serveOpenAPI(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/yaml")
	_, _ = w.Write(openAPI) // the client may have left
}

const (
	profileSeconds = 10  // of a profile over time, unless the request says otherwise
	profileLongest = 300 // that a request may say

	profileMost = 64 << 20 // bytes of one, which then ends early
)

// profile answers go tool pprof. net/http/pprof would put the same on
// [http.DefaultServeMux] of the whole program, and show its command line, which may have
// secrets in it.
func (a *admin) profile(w http.ResponseWriter, r *http.Request) {
	switch name := r.PathValue("profile"); name {
	case "":
		names := []string{"profile", "trace"}
		for _, p := range pprof.Profiles() {
			names = append(names, p.Name())
		}
		slices.Sort(names)
		for _, name := range names {
			fmt.Fprintln(w, name)
		}
	case "profile":
		a.profileFor(w, r, pprof.StartCPUProfile, pprof.StopCPUProfile)
	case "trace":
		a.profileFor(w, r, trace.Start, trace.Stop)
	default:
		p := pprof.Lookup(name)
		if p == nil {
			http.Error(w, "no such profile: see /debug/pprof/", http.StatusNotFound)
			return
		}
		debug, err := strconv.Atoi(r.URL.Query().Get("debug"))
		if err != nil || debug <= 0 {
			debug = 0
			w.Header().Set("Content-Type", "application/octet-stream")
		}
		_ = p.WriteTo(w, debug) // the client may have left
	}
}

// profileFor records for as many seconds as the request says, and then sends what it has. The
// runtime keeps what a writer does not take, so a slow reader must not be that writer.
func (a *admin) profileFor(w http.ResponseWriter, r *http.Request, start func(io.Writer) error, stop func()) {
	n := profileSeconds
	if text := r.URL.Query().Get("seconds"); text != "" {
		var err error
		if n, err = strconv.Atoi(text); err != nil || n < 1 || n > profileLongest {
			http.Error(w, fmt.Sprintf("seconds=%q: want 1 to %d", text, profileLongest), http.StatusBadRequest)
			return
		}
	}
	recorded, err := &recording{full: make(chan struct{})}, errors.New("one at a time")
	if free := a.recording.TryLock(); free {
		defer a.recording.Unlock()
		err = start(recorded)
	}
	if err != nil {
		http.Error(w, "another profile is being recorded: "+err.Error(), http.StatusConflict)
		return
	}
	select {
	case <-time.After(time.Duration(n) * time.Second):
	case <-recorded.full:
	case <-r.Context().Done():
	}
	stop()
	w.Header().Set("Content-Type", "application/octet-stream")
	_, _ = w.Write(recorded.Bytes()) // the client may have left
}

// recording is a profile, up to about profileMost bytes. One goroutine at a time writes.
type recording struct {
	bytes.Buffer
	full chan struct{} // closed when it is
}

func (r *recording) Write(b []byte) (int, error) {
	switch {
	case r.Len() >= profileMost:
		return len(b), nil
	case r.Len()+len(b) >= profileMost:
		close(r.full)
	}
	return r.Buffer.Write(b)
}
