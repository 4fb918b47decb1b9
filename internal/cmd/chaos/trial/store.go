package trial

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	osexec "os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/keyway-go/keyway/internal/cluster/proc"
)

// MasterName is what Sentinels call their master.
const MasterName = "keyway"

// Store is a store of one Redis, or of several with a Sentinel each, or of etcds. Its nodes are killed, frozen and started
// again.
type Store struct {
	Nodes []*Node
	etcd  bool
	stage proc.Stage
}

// Node is a server of a store, and maybe a Sentinel.
type Node struct {
	Name   string
	Dir    string                   // of logs and settings
	Data   string                   // directory of the server's data
	Addr   string                   // host:port of the server
	Beside string                   // host:port of the Sentinel, or by which an etcd speaks to its peers
	Env    []string                 // of the server
	In     func(func() error) error // calls a function where the node is, such as in a network namespace; nil: here

	Server   *Program
	Sentinel *Program // nil for none
}

// NewNodes makes n nodes on this machine below dir.
func NewNodes(dir, name string, n int) (all []*Node, err error) {
	for i := range n {
		node := &Node{Name: fmt.Sprint(name, "-", i+1)}
		node.Dir = filepath.Join(dir, node.Name)
		node.Data = filepath.Join(node.Dir, "data")
		var errs [3]error
		node.Addr, errs[0] = proc.FreeAddr()
		node.Beside, errs[1] = proc.FreeAddr()
		errs[2] = os.MkdirAll(node.Data, 0o700)
		all, err = append(all, node), errors.Join(err, errors.Join(errs[:]...))
	}
	return all, err
}

// program returns a program of the node: NAME=value…, what it runs, and its arguments.
func (s *Store) program(n *Node, what string, args ...string) *Program {
	return &Program{Name: n.Name + "-" + what, Stage: &s.stage, Spec: func(string, int) (proc.Spec, error) {
		return proc.Spec{Program: "env", Args: args, Log: filepath.Join(n.Dir, what+".log"), Run: func(cmd *osexec.Cmd) error {
			cmd.WaitDelay = time.Second // a child may have its output too
			return n.do(cmd.Start)
		}}, nil
	}}
}

// NewRedis makes the nodes a Redis with the settings of deploy/redis and more, or a primary and its replicas with a Sentinel each.
func NewRedis(nodes []*Node, more string) (*Store, error) {
	s := &Store{Nodes: nodes}
	files := []string{"redis.conf"}
	if len(nodes) > 1 {
		files = append(files, "replicated.conf")
	}
	server, err := settings(files...)
	if err != nil {
		return s, err
	}
	sentinel, err := settings("sentinel.conf")
	if err != nil {
		return s, err
	}
	first := strings.ReplaceAll(nodes[0].Addr, ":", " ")
	for i, n := range nodes {
		host, port, _ := net.SplitHostPort(n.Addr)
		text := fmt.Sprintf("%s\nport %s\nbind %s\nprotected-mode no\ndir %s\nsave \"\"\n%s\n", server, port, host, n.Data, more)
		if i > 0 {
			text += "replicaof " + first
		}
		file := filepath.Join(n.Dir, "redis.conf")
		n.Server = s.program(n, "redis", append(n.Env, "redis-server", file)...)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			return s, err
		}
		if len(nodes) == 1 {
			break
		}
		host, port, _ = net.SplitHostPort(n.Beside)
		beside := fmt.Sprintf("bind %s\nprotected-mode no\nport %s", host, port)
		text = strings.NewReplacer("redis-1 6379", first, "port 26379", beside, "keyway 1000", fmt.Sprint("keyway ", 1000+300*i)).Replace(sentinel)
		file = filepath.Join(n.Dir, "sentinel.conf")
		n.Sentinel = s.program(n, "sentinel", "redis-sentinel", file)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			return s, err
		}
	}
	return s, nil
}

// settings returns files of deploy/redis, without users and the names of other files.
func settings(names ...string) (string, error) {
	left := regexp.MustCompile(`(?m)^(aclfile|include|masteruser|masterauth|sentinel auth-.*) .*$`)
	var all strings.Builder
	for _, name := range names {
		text, err := os.ReadFile(filepath.Join("..", "..", "..", "deploy", "redis", name))
		if err != nil {
			return "", fmt.Errorf("the working directory has to be internal/cmd/chaos: %w", err)
		}
		all.Write(left.ReplaceAll(text, nil))
	}
	return all.String(), nil
}

// NewEtcd makes the nodes an etcd with its default elections.
func NewEtcd(nodes []*Node) *Store {
	s := &Store{Nodes: nodes, etcd: true}
	peers := make([]string, len(nodes))
	for i, n := range nodes {
		peers[i] = n.Name + "=http://" + n.Beside
	}
	for _, n := range nodes {
		client, peer := "http://"+n.Addr, "http://"+n.Beside
		n.Server = s.program(n, "etcd", "etcd", "--name", n.Name, "--data-dir", filepath.Join(n.Data, "etcd"), "--logger", "zap",
			"--listen-client-urls", client, "--advertise-client-urls", client, "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", strings.Join(peers, ","))
	}
	return s
}

// URL is what programs get by --store.
func (s *Store) URL() string {
	var addrs, beside []string
	for _, n := range s.Nodes {
		addrs, beside = append(addrs, n.Addr), append(beside, n.Beside)
	}
	switch {
	case s.etcd:
		return "etcd://" + strings.Join(addrs, ",")
	case s.IsLed():
		return "redis-sentinel://" + beside[0] + "?master=" + MasterName + "&addr=" + strings.Join(beside[1:], "&addr=")
	}
	return "redis://" + addrs[0]
}

// IsLed reports whether one of the nodes leads the others.
func (s *Store) IsLed() bool { return len(s.Nodes) > 1 }

// Programs are the node's. A store that could not be made has none.
func (n *Node) Programs() []*Program {
	return slices.DeleteFunc([]*Program{n.Server, n.Sentinel}, func(p *Program) bool { return p == nil })
}

// Start starts the node's programs.
func (n *Node) Start(ctx context.Context) error {
	for _, p := range n.Programs() {
		if err := p.Start(ctx); err != nil {
			return err
		}
	}
	return nil
}

// Start starts all nodes, and returns when the store is whole.
func (s *Store) Start(ctx context.Context) error {
	for _, n := range s.Nodes {
		if err := n.Start(ctx); err != nil {
			return err
		}
	}
	return Await(ctx, "the store is whole", func() bool { return s.Whole() && s.met() })
}

// Kill ends all processes.
func (s *Store) Kill() {
	for _, n := range s.Nodes {
		for _, p := range n.Programs() {
			_, _ = p.Kill() // unless it does not run
		}
	}
}

// Clear deletes the data of nodes that have ended.
func (s *Store) Clear() error {
	for _, n := range s.Nodes {
		if err := errors.Join(os.RemoveAll(n.Data), os.Mkdir(n.Data, 0o700)); err != nil {
			return err
		}
	}
	return nil
}

// do calls f where the node is.
func (n *Node) do(f func() error) error {
	if n.In == nil {
		return f()
	}
	return n.In(f)
}

// Ask asks the node's Redis or Sentinel. It returns nothing if that does not answer within 2 s.
func (n *Node) Ask(addr string, command ...string) string {
	host, port, _ := net.SplitHostPort(addr)
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	var out []byte
	_ = n.do(func() (err error) { // then there is no answer
		out, err = osexec.CommandContext(ctx, "redis-cli", append([]string{"-h", host, "-p", port}, command...)...).Output()
		return err
	})
	return strings.TrimSpace(string(out))
}

// get returns what the node's etcd answers, on its host: nothing if it does not answer within a second.
func (n *Node) get(path string) string {
	transport := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, network, addr string) (conn net.Conn, err error) {
		return conn, n.do(func() error {
			conn, err = new(net.Dialer).DialContext(ctx, network, addr)
			return err
		})
	}}
	res, err := (&http.Client{Timeout: time.Second, Transport: transport}).Get("http://" + n.Addr + path)
	if err != nil {
		return ""
	}
	defer res.Body.Close()
	body, _ := io.ReadAll(res.Body)
	return string(body)
}

// Leader returns the node that leads the store, once there is one.
func (s *Store) Leader(ctx context.Context) (n *Node, err error) {
	err = Await(ctx, "the store has a leader", func() bool { n = s.Elected(); return n != nil })
	return n, err
}

// Elected returns the node that leads the store, or nil: the one etcd that says that it does, or whom most Sentinels take
// for the master.
func (s *Store) Elected() (leader *Node) {
	if s.etcd {
		for _, n := range s.Nodes {
			if strings.Contains(n.get("/metrics"), "\netcd_server_is_leader 1\n") {
				if leader != nil {
					return nil
				}
				leader = n
			}
		}
		return leader
	}
	votes := make(map[string]int)
	for _, n := range s.Nodes {
		votes[strings.ReplaceAll(n.Ask(n.Beside, "sentinel", "get-master-addr-by-name", MasterName), "\n", ":")]++
	}
	for _, n := range s.Nodes {
		if votes[n.Addr] > len(s.Nodes)/2 {
			return n
		}
	}
	return nil
}

// Whole reports whether the store takes writes, and has a leader whom all others follow if it is led.
func (s *Store) Whole() bool {
	if !s.IsLed() {
		return s.Nodes[0].Ask(s.Nodes[0].Addr, "ping") == "PONG"
	}
	leader := s.Elected()
	if leader == nil {
		return false
	}
	if s.etcd {
		for _, n := range s.Nodes {
			if !strings.Contains(n.get("/health"), `"true"`) {
				return false
			}
		}
		return true
	}
	info := leader.Ask(leader.Addr, "info", "replication")
	return strings.Contains(info, "role:master") && strings.Count(info, "state=online") == len(s.Nodes)-1
}

// met reports whether all Sentinels know each other and all replicas.
func (s *Store) met() bool {
	others := len(s.Nodes) - 1
	for _, n := range s.Nodes {
		if n.Sentinel == nil {
			continue
		}
		info := n.Ask(n.Beside, "sentinel", "master", MasterName)
		if !strings.Contains(info, fmt.Sprintf("num-other-sentinels\n%d", others)) || !strings.Contains(info, fmt.Sprintf("num-slaves\n%d", others)) {
			return false
		}
	}
	return true
}
