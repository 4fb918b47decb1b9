//go:build linux

package main

import (
	"os"
	"path/filepath"
	"strconv"
	"syscall"

	"github.com/keyway-go/keyway/loadtest/internal/proc"
	"github.com/keyway-go/keyway/loadtest/internal/servers"
)

// balancer is a running nginx.
type balancer struct {
	servers.Nginx
	process *proc.Process
}

// balancerWorkers is how many processes nginx has: few, as they share the clients' connections unevenly, and
// what is fair to clients would be theirs to say.
func balancerWorkers() string { return strconv.Itoa(max(1, cores()/4)) }

// balancerConnections are enough for clients and upstreams of any run.
const balancerConnections = 8192

// startBalancer starts nginx in front of the upstreams.
func (s *stack) startBalancer(upstreams []string) (err error) {
	b := &balancer{Nginx: servers.Nginx{
		Dir: filepath.Join(s.dir, "nginx-"+s.name), Workers: balancerWorkers(), Connections: balancerConnections, Hash: s.front == frontHash, Upstreams: upstreams,
	}}
	if b.HTTP, err = proc.FreeAddr(); err != nil {
		return err
	}
	if err := os.Mkdir(b.Dir, 0o755); err != nil {
		return err
	}
	if err := b.Write(); err != nil {
		return err
	}
	b.process, err = s.start(groupFront, b.Spec("nginx-"+s.name))
	s.balancer, s.addr = b, b.HTTP
	return err
}

// reload makes nginx take other upstreams.
func (b *balancer) reload(upstreams []string) error {
	b.Upstreams = upstreams
	if err := b.Write(); err != nil {
		return err
	}
	return b.process.Signal(syscall.SIGHUP)
}
