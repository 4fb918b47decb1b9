package router

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/gateway/internal/fields"
	"github.com/keyway-go/keyway/internal/wire/http1"
)

// tunnel passes on what client and app say after they have changed to another protocol. If it returns
// an error, the client has no answer.
func (x *upstreamRequest) tunnel(app io.ReadWriteCloser, asked, switched string) error {
	client, ok := x.client.(*netHTTPRequest)
	if !ok || !strings.EqualFold(asked, switched) {
		return fmt.Errorf("%w: the app has changed to the protocol %q, asked for was %q", gateway.ErrMayHaveRun, switched, asked)
	}
	conn, err := client.hijack()
	if err != nil {
		return err
	}
	defer conn.Close()
	defer context.AfterFunc(x.Ctx, func() { app.Close() })()
	head := http1.AppendStatus(nil, http.StatusSwitchingProtocols)
	for name, value := range x.Answer.Fields.All() {
		if value, ok := fields.ToClient(name, value); ok {
			head = http1.AppendField(head, name, value)
		}
	}
	if _, err := conn.Write(append(head, "Connection: Upgrade\r\nUpgrade: "+switched+"\r\n\r\n"...)); err != nil {
		return nil // there is nobody to tell
	}
	ended := make(chan error, 2)
	go func() { ended <- copyAll(app, conn) }()
	go func() { ended <- copyAll(conn, app) }()
	if <-ended == nil {
		<-ended
	}
	return nil
}

// copyAll copies what is said to its end, and passes that on.
func copyAll(to io.Writer, from io.Reader) error {
	if _, err := io.Copy(to, from); err != nil {
		return err
	}
	if half, ok := to.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return errors.ErrUnsupported
}
