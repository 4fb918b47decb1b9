package etcdtest

import (
	"fmt"
	"net"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"

	"github.com/keyway-go/keyway/internal/test/kit"
)

// member is a server of an etcd cluster, which can be stopped and started again on its data.
type member struct {
	config *embed.Config
	server *embed.Etcd
}

// startMembers starts an etcd of n members whose elections last 100 ms, and so a lease at least 1 s. Unless
// it is nil, change changes their configurations.
func startMembers(t *testing.T, n int, change func(*embed.Config)) []*member {
	t.Helper()
	var members []*member
	var cluster []string
	for i := range n {
		c := embed.NewConfig()
		c.Name = fmt.Sprint("m", i)
		c.Dir = filepath.Join(t.TempDir(), c.Name)
		c.LogLevel = "panic"
		c.TickMs, c.ElectionMs = 10, 100
		c.UnsafeNoFsync = true
		c.ListenClientUrls, c.ListenPeerUrls = freeURL(t), freeURL(t)
		c.AdvertiseClientUrls, c.AdvertisePeerUrls = c.ListenClientUrls, c.ListenPeerUrls
		c.InitialClusterToken = t.Name()
		if change != nil {
			change(c)
		}
		cluster = append(cluster, c.Name+"="+c.ListenPeerUrls[0].String())
		members = append(members, &member{config: c})
	}
	for _, m := range members {
		m.config.InitialCluster = strings.Join(cluster, ",")
		m.server = kit.Must(embed.StartEtcd(m.config))
		t.Cleanup(m.stop)
	}
	for _, m := range members {
		m.ready(t)
	}
	return members
}

func freeURL(t *testing.T) []url.URL {
	l := kit.Must(net.Listen("tcp", "127.0.0.1:0"))
	defer l.Close()
	return []url.URL{{Scheme: "http", Host: l.Addr().String()}}
}

func (m *member) ready(t *testing.T) {
	t.Helper()
	select {
	case <-m.server.Server.ReadyNotify():
	case <-time.After(time.Minute):
		t.Fatal("etcd does not start")
	}
}

func (m *member) stop() {
	if m.server != nil {
		m.server.Close()
		m.server = nil
	}
}

// kill stops a member that hands nothing over.
func (m *member) kill() {
	m.server.Server.HardStop()
	m.stop()
}

// start starts a member that was stopped.
func (m *member) start(t *testing.T) {
	t.Helper()
	m.config.ClusterState = embed.ClusterStateFlagExisting
	m.server = kit.Must(embed.StartEtcd(m.config))
	m.ready(t)
}

func (m *member) leads() bool {
	return m.server != nil && m.server.Server.Leader() == m.server.Server.MemberID()
}

// rawClient is a client of a member, without Keyway.
func rawClient(t *testing.T, m *member) *clientv3.Client {
	raw := kit.Must(clientv3.New(clientv3.Config{Endpoints: []string{m.config.ListenClientUrls[0].String()}, Logger: zap.NewNop()}))
	t.Cleanup(func() { raw.Close() })
	return raw
}

// storeURL is what --store says.
func storeURL(members []*member) string {
	var hosts []string
	for _, m := range members {
		hosts = append(hosts, m.config.ListenClientUrls[0].Host)
	}
	return "etcd://" + strings.Join(hosts, ",")
}
