package worker

import (
	"context"
	"net"
	"net/http"
	"net/url"
)

// SidecarOver is Sidecar for an app at http://app that dial connects to.
func (w *Worker) SidecarOver(dial func(context.Context) (net.Conn, error)) http.Handler {
	s, err := newSidecar(w, &url.URL{Scheme: "http", Host: "app"}, "http://app", true, false, dial)
	if err != nil {
		panic(err)
	}
	return s
}
