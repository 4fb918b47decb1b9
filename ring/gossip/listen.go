package gossip

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/hashicorp/memberlist"
)

// listen opens cfg's transport, and returns it with the address at which peers reach it. ctx bounds
// the look-up of names; dials and streams end with life.
func listen(ctx, life context.Context, cfg *Config, logger *slog.Logger) (memberlist.Transport, netip.AddrPort, error) {
	var none netip.AddrPort
	if cfg.Transport != nil {
		ip, port, err := cfg.Transport.FinalAdvertiseAddr("", 0)
		if err != nil {
			return nil, none, fmt.Errorf("%w: Transport: %w", ErrConfig, err)
		}
		addr, _ := netip.AddrFromSlice(ip)
		return cfg.Transport, netip.AddrPortFrom(addr.Unmap(), uint16(port)), nil
	}
	bind, err := resolve(ctx, cfg.Bind)
	if err != nil {
		return nil, none, fmt.Errorf("%w: Bind (--gossip) %q: %w", ErrConfig, cfg.Bind, err)
	}
	advertise := bind
	if cfg.Advertise != "" {
		if advertise, err = resolve(ctx, cfg.Advertise); err != nil {
			return nil, none, fmt.Errorf("%w: Advertise (--gossip-advertise) %q: %w", ErrConfig, cfg.Advertise, err)
		}
	}
	if err := cfg.guard(bind, advertise); err != nil {
		return nil, none, err
	}
	if advertise.Addr().IsUnspecified() {
		ip, err := outward()
		if err != nil {
			return nil, none, fmt.Errorf("%w: Bind (--gossip) %q: %w", ErrConfig, cfg.Bind, err)
		}
		advertise = netip.AddrPortFrom(ip, advertise.Port())
	}
	s, err := bindTo(life, bind, logger)
	if err != nil {
		return nil, none, fmt.Errorf("%w on %s: %w; choose a free address of this machine with --gossip", ErrBind, cfg.Bind, err)
	}
	return s, netip.AddrPortFrom(advertise.Addr(), cmp.Or(advertise.Port(), s.port())), nil
}

// guard refuses addresses that other machines reach if there is no key, or warns
// where cfg.Open allows them.
func (cfg *Config) guard(bind, advertise netip.AddrPort) error {
	field, addr := "Bind (--gossip)", bind
	if addr.Addr().IsLoopback() {
		field, addr = "Advertise (--gossip-advertise)", advertise
	}
	switch {
	case len(cfg.Keyring) > 0 || addr.Addr().IsLoopback():
		return nil
	case cfg.Open:
		cfg.Logger.Warn("gossip is not encrypted: anyone who reaches this address can join the cluster; set --gossip-key on all members", "component", "gossip", "addr", addr)
		return nil
	}
	return fmt.Errorf("%w: %s %s has no key: anyone who reaches it can join as a worker, get requests and read the URL of an offered store; set Keyring (--gossip-key) on all members to one output of openssl rand -hex 32, or accept that with Open (--gossip-open)", ErrConfig, field, addr)
}

// bindTo listens with TCP and UDP on one port. If the port is free to choose, the port chosen for
// TCP may be taken for UDP, so bindTo tries again.
func bindTo(life context.Context, addr netip.AddrPort, logger *slog.Logger) (s *sockets, err error) {
	for attempt := 1; ; attempt++ {
		s, err = openSockets(life, addr, logger)
		if err == nil || addr.Port() != 0 || attempt == 10 {
			return s, err
		}
	}
}

// resolve returns the first address of a host:port, or of a host with port 0. An empty host means all
// addresses of the machine.
func resolve(ctx context.Context, hostport string) (netip.AddrPort, error) {
	addrs, err := resolveAll(ctx, hostport, "0")
	if err != nil {
		return netip.AddrPort{}, err
	}
	return addrs[0], nil
}

func resolveAll(ctx context.Context, hostport, defaultPort string) ([]netip.AddrPort, error) {
	host, port, err := splitHostPort(hostport, defaultPort)
	if err != nil {
		return nil, err
	}
	if host == "" {
		return []netip.AddrPort{netip.AddrPortFrom(netip.IPv4Unspecified(), port)}, nil
	}
	if ip, err := netip.ParseAddr(host); err == nil {
		return []netip.AddrPort{netip.AddrPortFrom(ip.Unmap(), port)}, nil
	}
	ips, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return nil, err
	}
	slices.SortStableFunc(ips, byLength) // a name such as localhost then means the same on all members
	addrs := make([]netip.AddrPort, len(ips))
	for i, ip := range ips {
		addrs[i] = netip.AddrPortFrom(ip.Unmap(), port)
	}
	return addrs, nil
}

func splitSeed(addr string) (host string, port uint16, err error) {
	host, port, err = splitHostPort(addr, DefaultPort)
	if err == nil && host == "" {
		err = fmt.Errorf("no host")
	}
	if err == nil && port == 0 {
		err = fmt.Errorf("port 0")
	}
	return host, port, err
}

func splitHostPort(addr, defaultPort string) (string, uint16, error) {
	host, port, err := net.SplitHostPort(addr)
	if _, noIP := netip.ParseAddr(addr); noIP == nil || !strings.ContainsAny(addr, ":[]") {
		host, port, err = addr, defaultPort, nil
	}
	if err != nil {
		return "", 0, err
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return "", 0, fmt.Errorf("%q is not a port number", port)
	}
	return host, uint16(n), nil
}

// outward returns an address of this machine that others can reach: a private
// one before a public one, IPv4 before IPv6, loopback if there is no other.
func outward() (netip.Addr, error) {
	nets, err := net.InterfaceAddrs()
	if err != nil {
		return netip.Addr{}, err
	}
	var found []netip.Addr
	for _, n := range nets {
		if at, err := netip.ParsePrefix(n.String()); err == nil && at.Addr().IsGlobalUnicast() {
			found = append(found, at.Addr())
		}
	}
	slices.SortStableFunc(found, byLength)
	found = append(found, netip.AddrFrom4([4]byte{127, 0, 0, 1}))
	return found[max(0, slices.IndexFunc(found, netip.Addr.IsPrivate))], nil
}

// byLength orders IPv4 before IPv6.
func byLength(a, b netip.Addr) int { return cmp.Compare(a.Unmap().BitLen(), b.Unmap().BitLen()) }
