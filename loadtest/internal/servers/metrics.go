//go:build linux

package servers

import (
	"context"
	"io"
	"net/http"
	"strconv"
	"strings"
)

// Ask sends a request for a key, and returns the answer's body and status.
func Ask(ctx context.Context, method, url, key string) (body []byte, status int, err error) {
	req, err := http.NewRequestWithContext(ctx, method, url, nil)
	if err != nil {
		return nil, 0, err
	}
	req.Header.Set("X-Key", key)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, 0, err
	}
	defer res.Body.Close()
	body, err = io.ReadAll(res.Body)
	return body, res.StatusCode, err
}

// Metrics returns what the process with that admin address says of itself: values by name and labels, as in Prometheus' text.
func Metrics(ctx context.Context, addr string) (map[string]float64, error) {
	text, _, err := Ask(ctx, http.MethodGet, "http://"+addr+"/metrics", "")
	values := make(map[string]float64)
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		i := strings.LastIndexByte(line, ' ')
		if value, err := strconv.ParseFloat(line[i+1:], 64); err == nil && i > 0 { // a comment may end in anything
			values[line[:i]] = value
		}
	}
	return values, err
}
