package gossip

import (
	"log/slog"
	"net/netip"
	"runtime"
	"testing"
)

// A packet costs memory by its own size, not by that of the largest one.
func TestPacketsAreReadIntoOneBuffer(t *testing.T) {
	s, err := openSockets(t.Context(), netip.MustParseAddrPort("127.0.0.1:0"), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Shutdown()
	to := netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), s.port()).String()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	const packets = 200
	for i := range packets {
		if _, err := s.WriteTo([]byte{byte(i), 1, 2, 3}, to); err != nil {
			t.Fatal(err)
		}
		if p := <-s.PacketCh(); len(p.Buf) != 4 || p.Buf[0] != byte(i) || p.From.String() != to {
			t.Fatalf("packet %d came as %v from %v", i, p.Buf, p.From)
		}
	}
	runtime.ReadMemStats(&after)
	if each := (after.TotalAlloc - before.TotalAlloc) / packets; each > 4<<10 {
		t.Errorf("%d bytes for each packet", each)
	}
}
