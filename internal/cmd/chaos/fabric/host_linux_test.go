package fabric

import (
	"context"
	"io"
	"net"
	"net/netip"
	"os"
	"testing"
	"time"
)

// hosts makes two hosts, or skips the test where that is not allowed.
func hosts(t *testing.T, s *Switch) (a, b *Host) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("network namespaces need root")
	}
	var all []*Host
	for i, name := range []string{"a", "b"} {
		h, err := NewHost(s, name, netip.AddrFrom4([4]byte{10, 77, 0, byte(i + 1)}))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { h.Close() })
		all = append(all, h)
	}
	return all[0], all[1]
}

// ask sends a word from one host to another, which answers with it.
func ask(ctx context.Context, from *Host, addr string) (string, error) {
	answer := make([]byte, 5)
	err := from.Do(func() error {
		c, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
		if err != nil {
			return err
		}
		defer c.Close()
		if deadline, ok := ctx.Deadline(); ok {
			_ = c.SetDeadline(deadline)
		}
		if _, err := io.WriteString(c, "hello"); err != nil {
			return err
		}
		_, err = io.ReadFull(c, answer)
		return err
	})
	return string(answer), err
}

func TestHostsTalkThroughTheSwitch(t *testing.T) {
	s := NewSwitch(1)
	defer s.Close()
	a, b := hosts(t, s)
	addr := netip.AddrPortFrom(b.Addr, 7).String()
	var l net.Listener
	if err := b.Do(func() (err error) { l, err = net.Listen("tcp", addr); return err }); err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() { defer c.Close(); _, _ = io.Copy(c, c) }()
		}
	}()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	apply(t, s, "a", "b", Rule{Loss: 0.1, Delay: time.Millisecond})
	if answer, err := ask(ctx, a, addr); err != nil || answer != "hello" {
		t.Fatalf("%q, %v", answer, err)
	}
	heal := apply(t, s, "b", "a", Rule{Cut: true}) // the question arrives, the answer does not
	short, cancelShort := context.WithTimeout(ctx, 300*time.Millisecond)
	defer cancelShort()
	if answer, err := ask(short, a, addr); err == nil {
		t.Fatalf("through a cut came %q", answer)
	}
	if _, err := new(net.Dialer).DialContext(short, "tcp", addr); err == nil {
		t.Fatal("the test's own namespace reaches a host")
	}
	heal()
	if answer, err := ask(ctx, a, addr); err != nil || answer != "hello" {
		t.Fatalf("after the cut: %q, %v", answer, err)
	}
	if c := s.Counts(); c.Forwarded == 0 || c.Lost == 0 {
		t.Errorf("%+v", c)
	}
}
