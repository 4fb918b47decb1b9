package trial

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"time"
)

const (
	warmKeys     = 200
	warmPatience = 60 * time.Second
)

// WarmUp sends requests for keys of their own until all of them are answered,
// and gives up after a minute.
func WarmUp(ctx context.Context, dial func(ctx context.Context) (net.Conn, error)) error {
	ctx, cancel := context.WithTimeout(ctx, warmPatience)
	defer cancel()
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx) }}
	defer transport.CloseIdleConnections()
	for i := range warmKeys {
		for {
			status, err := once(ctx, transport, -i-1)
			if status == http.StatusOK {
				break
			}
			if !Sleep(ctx, 50*time.Millisecond) {
				return fmt.Errorf("the cluster does not answer: %w", errors.Join(ctx.Err(), err))
			}
		}
	}
	return nil
}

func once(ctx context.Context, transport http.RoundTripper, number int) (status int, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+host+"/warm", nil)
	if err != nil {
		return 0, err
	}
	req.Header.Set(HeaderKey, "warm"+strconv.Itoa(number))
	req.Header.Set(headerRequest, strconv.Itoa(number))
	req.Header.Set(headerWork, "0s")
	res, err := transport.RoundTrip(req)
	if err != nil {
		return 0, err
	}
	defer res.Body.Close()
	body, _ := io.ReadAll(io.LimitReader(res.Body, 4<<10))
	if res.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", res.Status, body)
	}
	return res.StatusCode, err
}
