package sidecar

import (
	"context"
	"errors"
	"io"
	"net/http"

	"github.com/keyway-go/keyway/gateway/internal/appstate"
	"github.com/keyway-go/keyway/gateway/internal/fields"
	"github.com/keyway-go/keyway/internal/wire/grammar"
	"github.com/keyway-go/keyway/internal/wire/hop1"
	"github.com/keyway-go/keyway/internal/wire/http1"
	"github.com/keyway-go/keyway/internal/wire/link"
)

// smallBody reads the body of a simple request, until ctx is done: its client may send it slowly.
func smallBody(ctx context.Context, r *link.ServerRequest) ([]byte, error) {
	if r.ContentLength == 0 {
		return nil, nil
	}
	body := make([]byte, r.ContentLength)
	for have := 0; have < len(body); {
		n, err := r.Body.ReadContext(ctx, body[have:])
		if have += n; err != nil {
			return nil, err
		}
	}
	return body, nil
}

// answerFromApp passes the app's answer on. When the client has gone it still
// waits for the end of it.
func answerFromApp(w *link.ResponseWriter, e *hop1.Exchange) {
	var memory [512]byte
	gone := w.WriteHead(e.Status, e.ContentLength, publicFields(memory[:0], e.Fields)) != nil
	for {
		if n, last := e.Buffered(); n == 0 && !last && !gone {
			gone = w.Flush() != nil
		}
		piece, err := e.Next()
		switch {
		case err == io.EOF:
			w.SetTrailer(publicTrailer(e.Trailer()))
			return
		case errors.Is(err, appstate.ErrStreamEnds):
			return // the answer has ended, for the client in order
		case err != nil:
			w.Abort()
			return
		case !gone:
			_, err := w.Write(piece)
			gone = err != nil
		}
	}
}

// publicFields appends the fields of an app's answer that the client gets.
func publicFields(list link.Fields, app []http1.Field) link.Fields {
	for i := range app {
		name := http.CanonicalHeaderKey(grammar.Text(app[i].Name))
		if value, ok := fields.ToClient(name, grammar.Text(app[i].Value)); ok {
			list = link.AppendField(list, name, value)
		}
	}
	return list
}

// publicTrailer returns the app's trailers that the client gets.
func publicTrailer(trailer []http1.Field) (list link.Fields) {
	for _, f := range trailer {
		if fields.IsTrailer(grammar.Text(f.Name)) {
			list = link.AppendField(list, f.Name, f.Value)
		}
	}
	return list
}
