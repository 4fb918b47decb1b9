package cluster_test

import (
	"testing"

	"github.com/keyway-go/keyway/internal/test/certs"
)

// A cluster changes to TLS between members, and back, one member after the other, and no
// request fails.
func TestTLSBetweenMembersComesAndGoes(t *testing.T) {
	dir := t.TempDir()
	ca, err := certs.NewCA(dir, "members")
	if err != nil {
		t.Fatal(err)
	}
	cert, key, err := ca.Issue(dir, "member", nil)
	if err != nil {
		t.Fatal(err)
	}
	tls := []string{"--peer-cert", cert, "--peer-key", key, "--peer-ca", ca.File}
	optional := append([]string{"--peer-tls-optional"}, tls...)
	p := startPair(t)
	l := p.load(2)
	l.await(50)
	restartWorker := func(name string) {
		stopCleanly(t, p.workers[name])
		p.startWorker(name, p.args...)
		l.await(50)
	}
	restartRouter := func(i int) {
		p.restart(i)
		l.await(50)
	}
	for _, step := range []struct {
		args  []string
		mixed bool
	}{{optional, true}, {tls, false}, {optional, true}, {nil, false}} {
		p.args = step.args
		restartRouter(0)
		if step.mixed {
			restartWorker("w1")
			restartRouter(1)
		} else {
			restartRouter(1)
			restartWorker("w1")
		}
		restartWorker("w2")
	}
	l.end()
}
