package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/keyway-go/keyway/internal/cluster/proc"
	"github.com/keyway-go/keyway/internal/cmd/chaos/trial"
)

// stores are the kinds of stores, and how one is made in a directory.
var stores = []struct {
	name, title string
	make        func(dir string) (*backend, error)
}{
	{"redis", "Redis", func(dir string) (*backend, error) { return redis(dir, 1) }},
	{"sentinel", "Redis, Sentinel", func(dir string) (*backend, error) { return redis(dir, 3) }},
	{"etcd", "etcd of three", etcd},
}

// backend is a store. Its machines are killed, frozen and started again.
type backend struct {
	url      string // for --store
	machines []machine
	ready    func() bool        // it takes writes
	leads    func(machine) bool // nil for a store without a leader
}

// machine is a server with its data, and maybe a Sentinel.
type machine struct {
	addr    string // host:port of the server
	data    string // its directory
	daemons []*trial.Daemon
}

func (m machine) start() error {
	for _, d := range m.daemons {
		if err := d.Start(); err != nil {
			return err
		}
	}
	return nil
}

func (m machine) signal(s syscall.Signal) {
	for _, d := range m.daemons {
		d.Signal(s)
	}
}

// start starts all machines and returns when the store takes writes.
func (b *backend) start(ctx context.Context) error {
	for _, m := range b.machines {
		if err := m.start(); err != nil {
			return err
		}
	}
	return trial.Await(ctx, "the store is ready", b.ready)
}

func (b *backend) kill() {
	for _, m := range b.machines {
		for _, d := range m.daemons {
			d.End(syscall.SIGKILL)
		}
	}
}

// machine returns the leader's machine, or another one.
func (b *backend) machine(ctx context.Context, leader bool) (found machine, err error) {
	err = trial.Await(ctx, "the store has a leader", func() bool {
		for _, m := range b.machines {
			if b.leads(m) == leader {
				found = m
			}
		}
		return found.data != "" && b.ready()
	})
	return found, err
}

// newMachine makes a machine whose server logs to a file of its name.
func newMachine(dir, name string) (m machine, port string, err error) {
	if m.addr, err = proc.FreeAddr(); err != nil {
		return m, "", err
	}
	m.data = filepath.Join(dir, name)
	_, port, _ = net.SplitHostPort(m.addr)
	return m, port, os.Mkdir(m.data, 0o700)
}

// settings returns files of deploy/redis, without the names of other files in them.
func settings(names ...string) (string, error) {
	var kept strings.Builder
	for _, name := range names {
		text, err := os.ReadFile(filepath.Join("..", "..", "..", "deploy", "redis", name))
		if err != nil {
			return "", fmt.Errorf("the working directory has to be internal/cmd/chaos: %w", err)
		}
		for line := range strings.Lines(string(text)) {
			if !strings.HasPrefix(line, "aclfile ") && !strings.HasPrefix(line, "include ") {
				kept.WriteString(line)
			}
		}
	}
	return kept.String(), nil
}

// redis makes a Redis, or a primary and replicas with a Sentinel each.
func redis(dir string, n int) (*backend, error) {
	b, files := new(backend), []string{"redis.conf"}
	if n > 1 {
		files = append(files, "replicated.conf")
	}
	server, err := settings(files...)
	if err != nil {
		return nil, err
	}
	sentinel, err := settings("sentinel.conf")
	if err != nil {
		return nil, err
	}
	var sentinels []string
	add := func(m *machine, program, name, text string) error {
		file := m.data + name
		m.daemons = append(m.daemons, &trial.Daemon{Log: file + ".log", Args: []string{program, file + ".conf"}})
		return os.WriteFile(file+".conf", []byte(text), 0o600)
	}
	for i := range n {
		m, port, err := newMachine(dir, fmt.Sprint("redis-", i+1))
		if err != nil {
			return nil, err
		}
		text := fmt.Sprintf("%s\nport %s\nbind 127.0.0.1\ndir %s\nsave \"\"\n", server, port, m.data)
		if i > 0 {
			text += "replicaof " + strings.ReplaceAll(b.machines[0].addr, ":", " ")
		}
		if err := add(&m, "redis-server", "", text); err != nil {
			return nil, err
		}
		b.machines = append(b.machines, m)
	}
	b.url = "redis://" + b.machines[0].addr
	b.ready = func() bool { return trial.Ask(b.machines[0].addr, "ping") == "PONG" }
	if n == 1 {
		return b, nil
	}
	for i := range b.machines {
		addr, err := proc.FreeAddr()
		if err != nil {
			return nil, err
		}
		sentinels = append(sentinels, addr)
		_, port, _ := net.SplitHostPort(addr)
		text := strings.NewReplacer("redis-1 6379", strings.ReplaceAll(b.machines[0].addr, ":", " "), "port 26379", "bind 127.0.0.1\nport "+port,
			"keyway 1000", fmt.Sprint("keyway ", 1000+300*i)).Replace(sentinel)
		if err := add(&b.machines[i], "redis-sentinel", "-sentinel", text); err != nil {
			return nil, err
		}
	}
	b.url = "redis-sentinel://" + sentinels[0] + "?master=keyway&addr=" + strings.Join(sentinels[1:], "&addr=")
	b.leads = func(m machine) bool {
		info := trial.Ask(m.addr, "info", "replication")
		return strings.Contains(info, "role:master") && strings.Contains(info, "state=online")
	}
	b.ready = func() bool {
		leaders := 0
		for i, m := range b.machines {
			if b.leads(m) {
				leaders++
			}
			if known := trial.Ask(sentinels[i], "sentinel", "master", "keyway"); !strings.Contains(known, "num-other-sentinels\n2") || !strings.Contains(known, "num-slaves\n2") {
				return false
			}
		}
		return leaders == 1
	}
	return b, nil
}

// quick gives up an etcd that does not answer.
var quick = &http.Client{Timeout: time.Second}

// etcd makes an etcd of three with its default elections.
func etcd(dir string) (*backend, error) {
	b := new(backend)
	var clients, peers []string
	for i := range 3 {
		m, _, err := newMachine(dir, fmt.Sprint("etcd-", i+1))
		if err != nil {
			return nil, err
		}
		peer, err := proc.FreeAddr()
		if err != nil {
			return nil, err
		}
		name, clientURL, peerURL := filepath.Base(m.data), "http://"+m.addr, "http://"+peer
		clients, peers = append(clients, m.addr), append(peers, name+"="+peerURL)
		m.daemons = []*trial.Daemon{{Log: m.data + ".log", Args: []string{"etcd", "--name", name, "--data-dir", m.data, "--logger", "zap",
			"--listen-client-urls", clientURL, "--advertise-client-urls", clientURL, "--listen-peer-urls", peerURL, "--initial-advertise-peer-urls", peerURL}}}
		b.machines = append(b.machines, m)
	}
	for _, m := range b.machines {
		m.daemons[0].Args = append(m.daemons[0].Args, "--initial-cluster", strings.Join(peers, ","))
	}
	b.url = "etcd://" + strings.Join(clients, ",")
	b.leads = func(m machine) bool {
		return strings.Contains(trial.Get(quick, m.addr, "/metrics"), "\netcd_server_is_leader 1\n")
	}
	b.ready = func() bool {
		healthy := 0
		for _, m := range b.machines {
			if strings.Contains(trial.Get(quick, m.addr, "/health"), `"true"`) {
				healthy++
			}
		}
		return healthy == len(b.machines)
	}
	return b, nil
}
