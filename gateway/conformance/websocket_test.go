package conformance

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/coder/websocket"
)

// echo answers each message with itself, and speaks the subprotocol that the
// client asks for.
func echo(mode websocket.CompressionMode) http.HandlerFunc {
	return func(rw http.ResponseWriter, r *http.Request) {
		ws, err := websocket.Accept(rw, r, &websocket.AcceptOptions{CompressionMode: mode, Subprotocols: []string{"orders.v1"}})
		if err != nil {
			return
		}
		defer ws.CloseNow()
		ws.SetReadLimit(-1)
		for {
			kind, message, err := ws.Read(r.Context())
			if err == nil {
				err = ws.Write(r.Context(), kind, message)
			}
			if code := websocket.CloseStatus(err); code != -1 {
				ws.Close(code, "bye")
			}
			if err != nil {
				return
			}
		}
	}
}

// TestWebSocket exchanges messages between a client and a server of
// github.com/coder/websocket through router and sidecar, of the sizes at which
// frames change their form (Autobahn's cases 1.1, 1.2 and 9), compressed or not.
func TestWebSocket(t *testing.T) {
	t.Parallel()
	for _, mode := range []websocket.CompressionMode{websocket.CompressionDisabled, websocket.CompressionContextTakeover, websocket.CompressionNoContextTakeover} {
		t.Run(fmt.Sprintf("compression %d", mode), func(t *testing.T) {
			t.Parallel()
			app := httptest.NewServer(echo(mode))
			defer app.Close()
			c := newCluster(t, app.URL)
			ctx, cancel := context.WithTimeout(t.Context(), settled)
			defer cancel()
			ws, _, err := websocket.Dial(ctx, "ws://"+c.router+"/socket", &websocket.DialOptions{CompressionMode: mode, Subprotocols: []string{"orders.v1"}})
			if err != nil {
				t.Fatal(err)
			}
			defer ws.CloseNow()
			ws.SetReadLimit(-1)
			if got := ws.Subprotocol(); got != "orders.v1" {
				t.Errorf("the subprotocol is %q", got)
			}
			random := rand.New(rand.NewPCG(1, 2))
			for _, size := range []int{0, 1, 125, 126, 127, 128, 65535, 65536, 65537, 1 << 20, 4 << 20} {
				for _, kind := range []websocket.MessageType{websocket.MessageText, websocket.MessageBinary} {
					message := bytes.Repeat([]byte("héllo "), size/7+1)[:size]
					if kind == websocket.MessageText {
						message = bytes.Repeat([]byte("x"), size)
					} else {
						for i := range min(size, 4096) {
							message[i] = byte(random.Uint32())
						}
					}
					sent := make(chan error, 1)
					go func() { sent <- ws.Write(ctx, kind, message) }()
					gotKind, got, err := ws.Read(ctx)
					if err := errors.Join(err, <-sent); err != nil {
						t.Fatalf("%v of %d bytes: %v", kind, size, err)
					}
					if gotKind != kind || !bytes.Equal(got, message) {
						t.Fatalf("%v of %d bytes came back as %v of %d", kind, size, gotKind, len(got))
					}
				}
			}
			if err := ws.Close(4000, "done"); err != nil && websocket.CloseStatus(err) != 4000 {
				t.Errorf("the connection does not close with its code: %v", err)
			}
		})
	}
}

// TestWebSocketPing has a client ping the app through router and sidecar.
func TestWebSocketPing(t *testing.T) {
	t.Parallel()
	app := httptest.NewServer(echo(websocket.CompressionDisabled))
	defer app.Close()
	c := newCluster(t, app.URL)
	ctx, cancel := context.WithTimeout(t.Context(), settled)
	defer cancel()
	ws, _, err := websocket.Dial(ctx, "ws://"+c.router+"/", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer ws.CloseNow()
	ctx = ws.CloseRead(ctx) // which reads the pongs
	for range 100 {
		if err := ws.Ping(ctx); err != nil {
			t.Fatal(err)
		}
	}
}
