package etcdtest

import (
	"crypto/rand"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/keyway-go/keyway/fallback/etcd"
	"github.com/keyway-go/keyway/fallback/internal/stores"
	"github.com/keyway-go/keyway/fallback/store"
	"github.com/keyway-go/keyway/internal/test/kit"
	"github.com/keyway-go/keyway/internal/test/storetest"
	"github.com/keyway-go/keyway/ring"
)

// Sessions and quarantines that shall run out in a test last this long: on a busy machine a call to etcd can take
// a second.
const shortTTL = 2 * time.Second

func TestConformance(t *testing.T) {
	t.Parallel()
	servers := startMembers(t, 1, nil)
	raw := rawClient(t, servers[0])
	open := func(t *testing.T) storetest.Harness { return harness(t, storeURL(servers), raw) }
	storetest.Conformance(t, open)
	storetest.Handles(t, open)
	storetest.Restarts(t, open)
}

// harness is a cluster of its own on an etcd.
func harness(t *testing.T, url string, raw *clientv3.Client) storetest.Harness {
	name := rand.Text()
	prefix := "{keyway:" + name + "}/"
	settings := ring.Settings{Cluster: name, TTL: shortTTL}
	open := func(t *testing.T, settings ring.Settings, newCluster bool) storetest.Store {
		s := kit.Must(etcd.New(url, store.Config{Settings: settings, NewCluster: newCluster}))
		t.Cleanup(func() { s.Close() })
		return s
	}
	remove := func(key string, opts ...clientv3.OpOption) { kit.Must(raw.Delete(t.Context(), key, opts...)) }
	return storetest.Harness{
		Terse:  true,
		Mute:   true,
		TTL:    shortTTL,
		Elapse: func(d time.Duration) { <-time.After(d) },
		Now:    time.Now,
		Open:   func(t *testing.T, newCluster bool) storetest.Store { return open(t, settings, newCluster) },
		OpenWith: func(t *testing.T, change func(*ring.Settings)) storetest.Store {
			other := settings
			change(&other)
			return open(t, other, false)
		},
		// A restart keeps everything and so ends no generation. What does with all data there is another cluster
		// id, which a restored snapshot has: here meta names another one.
		Restart: func() {
			value := kit.Must(raw.Get(t.Context(), prefix+"meta")).Kvs[0].Value
			kit.Must(raw.Put(t.Context(), prefix+"meta", otherCluster(string(value))))
		},
		Lose:    func() { remove(prefix, clientv3.WithPrefix()) },
		LoseKey: func(key string) { remove(key) },
		Keys:    []string{prefix + "meta"},
	}
}

// otherCluster changes the id of the etcd cluster in a value of meta, which is its fourth field.
func otherCluster(value string) string {
	var fields []string
	for f := stores.Read(value); f.More(); {
		fields = append(fields, f.Text())
	}
	fields[3] = "1"
	return stores.Join(fields...)
}
