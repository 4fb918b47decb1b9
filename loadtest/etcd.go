//go:build linux

package main

import (
	"bufio"
	"context"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/keyway-go/keyway/loadtest/internal/proc"
	"github.com/keyway-go/keyway/loadtest/internal/servers"
)

// etcdServer is a cluster of one, which writes to the disk before it answers.
var etcdServer = server{
	pkg:      "etcd-server",
	programs: func() []string { return []string{proc.Find("etcd")} },
	start:    func(l *launch) (proc.Spec, error) { return servers.Etcd("", filepath.Join(l.dir, "data")) },
	url:      func(addr string) string { return "http://" + addr },
	commands: etcdCommands,
}

// etcdCommands sums up the messages that etcd has had from its clients.
func etcdCommands(ctx context.Context, url string) (sum int64, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/metrics", nil)
	if err != nil {
		return 0, err
	}
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, err
	}
	defer res.Body.Close()
	lines := bufio.NewScanner(res.Body)
	for lines.Scan() {
		if rest, ok := strings.CutPrefix(lines.Text(), "grpc_server_msg_received_total{"); ok {
			_, value, _ := strings.Cut(rest, "} ")
			n, err := strconv.ParseFloat(value, 64)
			if err != nil {
				return 0, err
			}
			sum += int64(n)
		}
	}
	return sum, lines.Err()
}
