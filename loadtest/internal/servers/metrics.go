//go:build linux

package servers

import (
	"bufio"
	"context"
	"net/http"
	"strconv"
	"strings"
)

// Metrics returns what the process with that admin address says of itself: values by name and labels, as in Prometheus' text.
func Metrics(ctx context.Context, addr string) (map[string]float64, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+"/metrics", nil)
	if err != nil {
		return nil, err
	}
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	values := make(map[string]float64)
	lines := bufio.NewScanner(res.Body)
	for lines.Scan() {
		i := strings.LastIndexByte(lines.Text(), ' ')
		if value, err := strconv.ParseFloat(lines.Text()[i+1:], 64); err == nil && i > 0 { // a comment may end in anything
			values[lines.Text()[:i]] = value
		}
	}
	return values, lines.Err()
}
