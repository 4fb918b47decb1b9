//go:build linux

package main

import (
	"context"
	"path/filepath"
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
	values, err := servers.Metrics(ctx, strings.TrimPrefix(url, "http://"))
	for name, value := range values {
		if strings.HasPrefix(name, "grpc_server_msg_received_total{") {
			sum += int64(value)
		}
	}
	return sum, err
}
