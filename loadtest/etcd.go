//go:build linux

package main

import (
	"bufio"
	"context"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"

	"github.com/keyway-go/keyway/loadtest/internal/proc"
)

// etcdServer is a cluster of one, which writes to the disk before it answers.
var etcdServer = server{
	pkg:      "etcd-server",
	programs: func() []string { return []string{proc.Find("etcd")} },
	version:  func() []string { return []string{proc.Find("etcd"), "--version"} },
	start: func(l *launch) (proc.Spec, error) {
		here, peer := "http://"+l.host+":"+l.port, "http://"+l.host+":"+l.more
		return proc.Spec{Program: proc.Find("etcd"), Args: []string{
			"--name", "one", "--data-dir", filepath.Join(l.dir, "data"), "--listen-client-urls", here, "--advertise-client-urls", here,
			"--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", "one=" + peer, "--logger", "zap",
		}}, nil
	},
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

// etcd is the lock of etcd's package concurrency. It belongs to a session, so
// that each caller needs one of its own; they are kept.
func (a *app) etcd() (enter, func(), error) {
	client, err := clientv3.New(clientv3.Config{Endpoints: strings.Split(a.Stores[storeEtcd], ",")})
	if err != nil {
		return nil, nil, err
	}
	spare := make(chan *concurrency.Session, sparesKept)
	session := func() (*concurrency.Session, error) {
		select {
		case s := <-spare:
			return s, nil
		default:
			return concurrency.NewSession(client, concurrency.WithTTL(max(1, int(a.TTL.Seconds()))))
		}
	}
	giveBack := func(s *concurrency.Session) {
		select {
		case spare <- s:
		default:
			_ = s.Close() // else its lease runs out
		}
	}
	lock := func(ctx context.Context, key string) (context.Context, int64, func(), error) {
		s, err := session()
		if err != nil {
			return nil, 0, nil, err
		}
		m := concurrency.NewMutex(s, a.lockName(key))
		if err := m.Lock(ctx); err != nil {
			_ = s.Close() // it may have lost its lease
			return nil, 0, nil, err
		}
		return ctx, m.Header().Revision, func() {
			if m.Unlock(context.WithoutCancel(ctx)) != nil {
				_ = s.Close() // which frees the lock
				return
			}
			giveBack(s)
		}, nil
	}
	return lock, func() { _ = client.Close() }, nil
}

// sparesKept bounds the sessions that nobody uses.
const sparesKept = 1024
