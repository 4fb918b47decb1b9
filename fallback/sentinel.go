package fallback

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"syscall"

	"github.com/redis/go-redis/v9"
)

// sentinels connects a client to the primary that most Sentinels name. When a Sentinel reports a
// switch, it ends the connections to other servers. go-redis's own client asks one Sentinel. If
// that is silent, because its machine is lost together with the primary, a client whose calls have
// short deadlines never asks another one.
type sentinels struct {
	options *redis.UniversalOptions

	mu    sync.Mutex
	conns map[*primaryConn]struct{}
	stop  context.CancelFunc // of the watches, which run while there are connections
}

// primaryConn is a connection to a primary. It may not be established so far.
type primaryConn struct {
	net.Conn
	sentinels *sentinels
	addr      string
	leave     context.CancelFunc // ends it
}

// checkedConn lets go-redis look whether the server has closed an idle connection.
type checkedConn struct {
	*primaryConn
	syscall.Conn
}

func newSentinelClient(o *redis.UniversalOptions) *redis.Client {
	s := &sentinels{options: o, conns: make(map[*primaryConn]struct{})}
	simple := o.Simple()
	if s.options.Dialer == nil {
		s.options.Dialer = redis.NewDialer(o.Simple())
	}
	simple.Dialer = s.dial
	return redis.NewClient(simple)
}

func (s *sentinels) dial(ctx context.Context, network, _ string) (net.Conn, error) {
	addr, err := s.primary(ctx)
	if err != nil {
		return nil, err
	}
	life, leave := context.WithCancel(context.Background())
	p := &primaryConn{sentinels: s, addr: addr, leave: leave}
	s.add(p)
	dialing, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(life, cancel)()
	if p.Conn, err = s.options.Dialer(dialing, network, addr); err != nil {
		s.remove(p)
		return nil, err
	}
	context.AfterFunc(life, func() { p.Conn.Close() })
	if c, ok := p.Conn.(syscall.Conn); ok {
		return checkedConn{p, c}, nil
	}
	return p, nil
}

// primary asks all Sentinels. It returns an address as soon as more than half of them name it, and otherwise the address
// with most votes at half of the dial timeout.
func (s *sentinels) primary(ctx context.Context) (addr string, err error) {
	ctx, cancel := context.WithTimeout(ctx, s.options.DialTimeout/2)
	defer cancel()
	type answer struct {
		addr string
		err  error
	}
	answers := make(chan answer, len(s.options.Addrs))
	for _, sentinel := range s.options.Addrs {
		go func() {
			client := s.client(sentinel)
			defer client.Close()
			parts, err := client.GetMasterAddrByName(ctx, s.options.MasterName).Result()
			switch {
			case errors.Is(err, redis.Nil):
				answers <- answer{err: fmt.Errorf("the Sentinel %s knows no master %q", sentinel, s.options.MasterName)}
			case err != nil:
				answers <- answer{err: fmt.Errorf("the Sentinel %s: %w", sentinel, err)}
			default:
				answers <- answer{addr: net.JoinHostPort(parts[0], parts[1])}
			}
		}()
	}
	votes := make(map[string]int)
	for range s.options.Addrs {
		a := <-answers
		if a.err != nil {
			err = errors.Join(err, a.err)
			continue
		}
		if votes[a.addr]++; votes[a.addr] > votes[addr] {
			addr = a.addr
		}
		if votes[addr] > len(s.options.Addrs)/2 {
			return addr, nil
		}
	}
	if addr != "" {
		err = nil
	}
	return addr, err
}

func (s *sentinels) client(addr string) *redis.SentinelClient {
	o := s.options.Simple()
	o.Addr, o.DB, o.Username, o.Password = addr, 0, s.options.SentinelUsername, s.options.SentinelPassword
	o.OnConnect, o.MaxRetries, o.PoolSize, o.MinIdleConns = nil, -1, 1, 0
	return redis.NewSentinelClient(o)
}

func (s *sentinels) add(p *primaryConn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.conns) == 0 {
		var ctx context.Context
		ctx, s.stop = context.WithCancel(context.Background())
		for _, addr := range s.options.Addrs {
			go s.watch(ctx, addr)
		}
	}
	s.conns[p] = struct{}{}
}

func (s *sentinels) remove(p *primaryConn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, p)
	if len(s.conns) == 0 {
		s.stop()
	}
}

// watch ends the connections to other servers when a Sentinel reports a new primary: after its
// promotion, and again when its replicas follow it.
func (s *sentinels) watch(ctx context.Context, sentinel string) {
	client := s.client(sentinel)
	defer client.Close()
	news := client.Subscribe(ctx, "+promoted-slave", "+switch-master")
	defer news.Close()
	messages := news.Channel()
	for {
		select {
		case <-ctx.Done():
			return
		case m, ok := <-messages:
			if !ok {
				return
			}
			switch parts := strings.Fields(m.Payload); {
			case len(parts) == 5 && parts[0] == s.options.MasterName: // name, old host and port, new host and port
				s.leaveAllBut(parts[3], parts[4])
			case len(parts) == 8 && parts[5] == s.options.MasterName: // "slave", its name, host and port, "@", name, old host and port
				s.leaveAllBut(parts[2], parts[3])
			}
		}
	}
}

func (s *sentinels) leaveAllBut(host, port string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for p := range s.conns {
		if p.addr != net.JoinHostPort(host, port) {
			p.leave()
		}
	}
}

// Close ends the connection.
func (p *primaryConn) Close() error {
	p.sentinels.remove(p)
	p.leave()
	return p.Conn.Close()
}
