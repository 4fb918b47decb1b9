package admin

import (
	_ "embed"
	"fmt"
	"io"
	"net/http"
	"runtime/pprof"
	"runtime/trace"
	"slices"
	"strconv"
	"time"

	"github.com/keyway-go/keyway/internal/wake"
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
)

// serveProfile answers go tool pprof. net/http/pprof would put the same on
// [http.DefaultServeMux] of the whole program, and show its command line, which may have
// secrets in it.
func serveProfile(w http.ResponseWriter, r *http.Request) {
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
		profileFor(w, r, pprof.StartCPUProfile, pprof.StopCPUProfile)
	case "trace":
		profileFor(w, r, trace.Start, trace.Stop)
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

// profileFor records for as many seconds as the request says.
func profileFor(w http.ResponseWriter, r *http.Request, start func(io.Writer) error, stop func()) {
	n := profileSeconds
	if text := r.URL.Query().Get("seconds"); text != "" {
		var err error
		if n, err = strconv.Atoi(text); err != nil || n < 1 || n > profileLongest {
			http.Error(w, fmt.Sprintf("seconds=%q: want 1 to %d", text, profileLongest), http.StatusBadRequest)
			return
		}
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	if err := start(w); err != nil {
		w.Header().Del("Content-Type")
		http.Error(w, "another profile is being recorded: "+err.Error(), http.StatusConflict)
		return
	}
	defer stop()
	wake.Sleep(time.Duration(n)*time.Second, r.Context().Done())
}
