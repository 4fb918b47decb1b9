package worker

import (
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/keyway-go/keyway/gateway/worker/internal/keyed"
	"github.com/keyway-go/keyway/internal/wire/grammar"
	"github.com/keyway-go/keyway/internal/wire/http1"
	"github.com/keyway-go/keyway/internal/wire/netutil"
	"github.com/keyway-go/keyway/internal/wire/websocket"
)

// streamGrace is how long a stream may continue when it must end.
const streamGrace = time.Second

func isEventStream(contentType string) bool {
	kind, _, _ := strings.Cut(contentType, ";")
	return strings.EqualFold(grammar.Trim(kind), "text/event-stream")
}

// hasEventStream is isEventStream for the fields of an answer.
func hasEventStream(fields []http1.Field) bool {
	for i := range fields {
		if f := &fields[i]; len(f.Name) == len("Content-Type") && strings.EqualFold(grammar.Text(f.Name), "Content-Type") {
			return isEventStream(grammar.Text(f.Value))
		}
	}
	return false
}

// detachStream is [keyed.Execution.LetGo], and ends the execution's span.
func detachStream(x keyed.Execution) *keyed.Stream {
	t := timingOf(x)
	s := x.LetGo()
	if s != nil {
		t.noteFailure("") // whatever becomes of the stream
		t.End("")
	}
	return s
}

// tunnel returns the connection on which the app and the client switch protocols. frames says that
// only the new protocol is written to it from now on. A WebSocket client is then told when the
// stream ends; any other connection is closed after a grace.
func tunnel(s *keyed.Stream, conn net.Conn, protocol string, frames bool) net.Conn {
	out, away := conn, func() {
		s.Cancel()
		time.AfterFunc(streamGrace, func() { netutil.CloseNow(conn) })
	}
	if frames {
		ws := websocket.NewConn(conn, protocol)
		out, away = ws, func() { ws.GoAway(websocket.ServiceRestart, "service restart", streamGrace) }
	}
	if !s.OnAway(away) {
		away()
	}
	return out
}

// detachStream frees the key of an answer that begins with that status, if it is a stream.
func (a *appWriter) detachStream(status int) {
	if a.wrote || a.held.IsNone() {
		return
	}
	timingOf(a.held).noteStatus(status)
	if status != http.StatusSwitchingProtocols && !isEventStream(a.Header().Get("Content-Type")) {
		return
	}
	if a.stream = detachStream(a.held); a.stream != nil {
		a.held = keyed.Execution{}
	}
}
