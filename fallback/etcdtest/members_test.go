package etcdtest

import (
	"context"
	"path/filepath"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"

	"github.com/keyway-go/keyway/fallback/etcd"
	"github.com/keyway-go/keyway/internal/records"
	"github.com/keyway-go/keyway/internal/test/kit"
)

// A server that was started as a cluster of its own answers for the members that are away: it would have the worker serve
// on there, while the others see its session end. Nothing is written there, and the session is renewed when a member is back.
func TestTrapMemberOfAnotherCluster(t *testing.T) {
	t.Parallel()
	home, stray := startMembers(t, 1, nil)[0], startMembers(t, 1, func(c *embed.Config) { c.InitialClusterToken = "stray" })[0]
	var s *etcd.Store
	for kit.Must(rawClient(t, home).Get(t.Context(), "{keyway:", clientv3.WithPrefix())).Count == 0 { // it begins with any of the two
		kit.Must(rawClient(t, stray).Delete(t.Context(), "{keyway:", clientv3.WithPrefix()))
		s = openStore(t, storeURL([]*member{home, stray}))
		kit.Must(s.Generation(t.Context(), true))
	}
	gen := kit.Must(s.Generation(t.Context(), true))
	kit.Must(s.Register(t.Context(), gen, records.Session{Incarnation: "a"}, time.Minute, nil))
	renew := func() error {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		_, err := s.Renew(ctx, gen, "a", time.Minute)
		return err
	}
	home.stop()
	if err := renew(); err == nil || !strings.Contains(err.Error(), "one etcd cluster") {
		t.Errorf("a renewal while only a stray server answers: %v", err)
	}
	if n := kit.Must(rawClient(t, stray).Get(t.Context(), "{keyway:", clientv3.WithPrefix())).Count; n > 0 {
		t.Errorf("%d keys were written to the stray server", n)
	}
	home.start(t)
	kit.Eventually(t, "the session is renewed", func() bool { return renew() == nil })
}

// A learner refuses requests. The next ones go to another member.
func TestLearner(t *testing.T) {
	t.Parallel()
	voter := startMembers(t, 1, nil)[0]
	c := *voter.config
	c.Name, c.Dir, c.ClusterState = "learner", filepath.Join(t.TempDir(), "learner"), embed.ClusterStateFlagExisting
	c.ListenClientUrls, c.ListenPeerUrls = freeURL(t), freeURL(t)
	c.AdvertiseClientUrls, c.AdvertisePeerUrls = c.ListenClientUrls, c.ListenPeerUrls
	c.InitialCluster = strings.Join([]string{voter.config.InitialCluster, c.Name + "=" + c.ListenPeerUrls[0].String()}, ",")
	kit.Must(rawClient(t, voter).MemberAddAsLearner(t.Context(), []string{c.ListenPeerUrls[0].String()}))
	learner := &member{config: &c, server: kit.Must(embed.StartEtcd(&c))}
	t.Cleanup(learner.stop)
	learner.ready(t)
	for range 6 { // each begins with any of the two
		if _, err := openStore(t, storeURL([]*member{voter, learner})).Generation(t.Context(), true); err != nil {
			t.Error(err)
		}
	}
}
