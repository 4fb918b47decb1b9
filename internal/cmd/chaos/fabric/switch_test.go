package fabric

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// wire is a device in memory.
type wire struct {
	out  chan []byte // frames that the host sends
	got  []received
	from time.Time
	done chan struct{}
}

type received struct {
	number int
	after  time.Duration
}

func newWire() *wire {
	return &wire{out: make(chan []byte), from: time.Now(), done: make(chan struct{})}
}

func (w *wire) Read(b []byte) (int, error) {
	select {
	case frame := <-w.out:
		return copy(b, frame), nil
	case <-w.done:
		return 0, io.ErrClosedPipe
	}
}

func (w *wire) Write(b []byte) (int, error) {
	w.got = append(w.got, received{int(binary.BigEndian.Uint32(b[headerBytes:])), time.Since(w.from)})
	return len(b), nil
}

func (w *wire) Close() error {
	close(w.done)
	return nil
}

func macOf(i byte) MAC { return MAC{2, 0, 0, 0, 0, i} }

func frame(to MAC, number, size int) []byte {
	f := make([]byte, max(size, headerBytes+4))
	copy(f, to[:])
	binary.BigEndian.PutUint32(f[headerBytes:], uint32(number))
	return f
}

// network runs f with a switch and hosts a, b and c in fake time.
func network(t *testing.T, seed uint64, f func(s *Switch, a, b, c *wire)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := NewSwitch(seed)
		defer s.Close()
		var wires []*wire
		for i, name := range []string{"a", "b", "c"} {
			wires = append(wires, newWire())
			if err := s.Attach(name, macOf(byte(i)), wires[i]); err != nil {
				t.Fatal(err)
			}
		}
		f(s, wires[0], wires[1], wires[2])
	})
}

func apply(t *testing.T, s *Switch, from, to string, r Rule) (heal func()) {
	t.Helper()
	heal, err := s.Apply(r, Way{from, to})
	if err != nil {
		t.Fatal(err)
	}
	return heal
}

// send sends n frames of a size from a wire, and waits until all have arrived.
func send(from *wire, to MAC, n, size int) {
	for i := range n {
		from.out <- frame(to, i, size)
	}
	time.Sleep(time.Minute)
	synctest.Wait()
}

func numbers(all []received) (list []int) {
	for _, r := range all {
		list = append(list, r.number)
	}
	return list
}

func TestFramesGoToTheirAddress(t *testing.T) {
	network(t, 1, func(s *Switch, a, b, c *wire) {
		send(a, macOf(1), 3, 60)
		if got := numbers(b.got); !slices.Equal(got, []int{0, 1, 2}) || len(c.got) != 0 || len(a.got) != 0 {
			t.Errorf("b got %v, c %v, a %v", got, c.got, a.got)
		}
		if b.got[2].after != 0 {
			t.Errorf("without a rule a frame took %v", b.got[2].after)
		}
		send(b, broadcast, 1, 60)
		if len(a.got) != 1 || len(c.got) != 1 || len(b.got) != 3 {
			t.Errorf("a broadcast came to a %v, c %v, b %v", a.got, c.got, b.got)
		}
		send(a, macOf(9), 1, 60)
		a.out <- []byte("short")
		if err := s.Attach("a", macOf(7), newWire()); err == nil {
			t.Error("two ports have one name")
		}
		if _, err := s.Apply(Rule{}, Way{"a", "x"}); err == nil {
			t.Error("a rule for a port that is not there")
		}
	})
}

func TestCutIsOneWay(t *testing.T) {
	network(t, 1, func(s *Switch, a, b, c *wire) {
		apply(t, s, "a", "b", Rule{Delay: time.Second})
		a.out <- frame(macOf(1), 9, 60)
		synctest.Wait()
		heal := apply(t, s, "a", "b", Rule{Cut: true})
		send(a, macOf(1), 2, 60)
		send(a, broadcast, 1, 60)
		send(b, macOf(0), 2, 60)
		if len(b.got) != 0 || len(a.got) != 2 || len(c.got) != 1 {
			t.Errorf("b got %v, a %v, c %v", b.got, a.got, c.got)
		}
		heal()
		begin := time.Since(b.from)
		send(a, macOf(1), 1, 60)
		if len(b.got) != 1 || b.got[0].after != begin+time.Second {
			t.Errorf("after the cut, with the delay of before, b got %v", b.got)
		}
	})
}

func TestDelayAndJitterKeepTheOrder(t *testing.T) {
	network(t, 1, func(s *Switch, a, b, _ *wire) {
		apply(t, s, "a", "b", Rule{Delay: 20 * time.Millisecond, Jitter: 10 * time.Millisecond})
		send(a, macOf(1), 200, 60)
		if !slices.IsSorted(numbers(b.got)) || len(b.got) != 200 {
			t.Errorf("got %v", numbers(b.got))
		}
		if first, last := b.got[0].after, b.got[199].after; first < 20*time.Millisecond || last > 30*time.Millisecond || last < 28*time.Millisecond {
			t.Errorf("arrived from %v to %v", first, last)
		}
	})
}

func TestLossFollowsTheSeed(t *testing.T) {
	play := func(seed uint64) (got []int) {
		network(t, seed, func(s *Switch, a, b, _ *wire) {
			apply(t, s, "a", "b", Rule{Loss: 0.2})
			send(a, macOf(1), 1000, 60)
			got = numbers(b.got)
			if c := s.Counts(); c.Forwarded != int64(len(got)) || c.Forwarded+c.Lost != 1000 {
				t.Errorf("%+v, %d arrived", c, len(got))
			}
		})
		return got
	}
	got := play(1)
	if len(got) < 740 || len(got) > 860 || !slices.IsSorted(got) {
		t.Errorf("%d frames arrived: %v", len(got), got)
	}
	if !slices.Equal(got, play(1)) || slices.Equal(got, play(2)) {
		t.Error("the loss is not a function of the seed")
	}
}

func TestRulesAddUp(t *testing.T) {
	r := Rule{Loss: 0.5, Delay: 1}.and(Rule{Cut: true, Loss: 0.5, Delay: 2, Jitter: 3})
	if want := (Rule{true, 0.75, 3, 3}); r != want {
		t.Errorf("%+v, want %+v", r, want)
	}
}

func TestWaitingFramesAreBounded(t *testing.T) {
	network(t, 1, func(s *Switch, a, b, _ *wire) {
		apply(t, s, "a", "b", Rule{Delay: time.Second})
		send(a, macOf(1), 1000, maxFrame)
		if want := maxWaiting / maxFrame; len(b.got) != want {
			t.Errorf("%d frames waited, want %d", len(b.got), want)
		}
	})
}

func TestCloseEndsDevices(t *testing.T) {
	network(t, 1, func(s *Switch, a, b, _ *wire) {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		<-a.done
		if err := s.Attach("d", macOf(4), newWire()); err == nil {
			t.Error("a closed switch takes a port")
		}
	})
}

func FuzzForward(f *testing.F) {
	f.Add([]byte("x"), uint8(1))
	f.Add(bytes.Repeat([]byte{0xff}, 60), uint8(2))
	f.Fuzz(func(t *testing.T, sent []byte, n uint8) {
		s := NewSwitch(uint64(n))
		a, b := newWire(), newWire()
		for i, w := range []*wire{a, b} {
			if err := s.Attach(fmt.Sprint(i), macOf(byte(i)), w); err != nil {
				t.Fatal(err)
			}
		}
		a.out <- sent[:min(len(sent), maxFrame)]
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	})
}
