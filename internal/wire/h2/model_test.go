package h2

import (
	"encoding/binary"
	"math/rand/v2"
	"sync"
	"testing"
)

// model is a client that changes windows at random, and checks that the server keeps to them.
type model struct {
	*client
	rng *rand.Rand

	mu      sync.Mutex
	initial int              // window of a new stream, by the latest SETTINGS
	lowered []func()         // of SETTINGS without an acknowledgement: what they take from the streams of their time
	credit  int              // of the connection
	streams map[uint32]*flow // all that were opened
}

// flow is what the client knows of an answer.
type flow struct {
	credit, got int
	reset, over bool
	gate        chan bool // a handler takes a value from it before each step
	sent        chan int  // how many bytes the handler had to send in all
}

// TestWindowsAgainstAModel: no frame exceeds what the client has granted, whatever it grants and takes back
// while handlers write. Once it grants enough, all comes, in order.
func TestWindowsAgainstAModel(t *testing.T) {
	for seed := range uint64(60) {
		m := &model{rng: rand.New(rand.NewPCG(seed, 0)), initial: defaultWindow, credit: defaultWindow, streams: make(map[uint32]*flow)}
		m.client = greet(t, func(s *Stream) { m.handle(s, rand.New(rand.NewPCG(seed, uint64(s.id)))) })
		m.run()
		if t.Failed() {
			t.Fatal("seed", seed)
		}
	}
}

// handle answers with pieces of any length. The first stream takes most of the connection's window.
func (m *model) handle(s *Stream, rng *rand.Rand) {
	m.mu.Lock()
	f := m.streams[s.id]
	m.mu.Unlock()
	s.Answer(200, nil, nil, false)
	sent, length := 0, defaultWindow-100
	for end := false; !end; end = rng.IntN(6) == 0 {
		if s.id > 1 {
			<-f.gate
			length = rng.IntN(40)
		}
		piece := make([]byte, length)
		for i := range piece {
			piece[i] = byte(sent + i)
		}
		sent += length
		s.Write(piece, false)
		length = 0
	}
	f.sent <- sent
	<-f.gate
	s.End(nil)
}

func (m *model) run() {
	read := make(chan struct{})
	go func() {
		defer close(read)
		m.read()
	}()
	for id := uint32(1); id < 2*uint32(testServer.MaxStreams); id += 2 {
		m.mu.Lock()
		m.streams[id] = &flow{credit: m.initial, gate: make(chan bool, 1000), sent: make(chan int, 1)}
		m.mu.Unlock()
		m.send(open(id, true, get()))
		for range m.rng.IntN(16) {
			m.change(id)
		}
	}
	m.set(1 << 20)
	m.grant(0, 1<<20)
	for _, f := range m.streams {
		close(f.gate)
	}
	<-read
}

// change does something about one of the streams up to last.
func (m *model) change(last uint32) {
	id := m.rng.Uint32N(last/2+1)*2 + 1
	switch n := m.rng.IntN(20); {
	case n < 8:
		m.streams[id].gate <- true
	case n < 12:
		m.set(m.rng.IntN(60))
	case n < 15:
		m.grant(id, 1+m.rng.IntN(40))
	case n < 18:
		m.grant(0, 1+m.rng.IntN(40))
	case n < 19 && id > 1:
		m.mu.Lock()
		m.streams[id].reset = true
		m.mu.Unlock()
		m.send(raw(frameReset, 0, id, word(uint32(Cancel))))
	}
}

// set changes the window of all streams. The server may use what it gains at once, and has to stop using what it
// loses when it says so.
func (m *model) set(initial int) {
	m.mu.Lock()
	more := initial - m.initial
	m.initial = initial
	var now []*flow
	for _, f := range m.streams {
		now = append(now, f)
	}
	apply := func() {
		for _, f := range now {
			f.credit += more
		}
	}
	if more > 0 {
		apply()
		apply = func() {}
	}
	m.lowered = append(m.lowered, apply)
	m.mu.Unlock()
	m.send(settingsFrame(settingInitialWindow, uint32(initial)))
}

// grant enlarges the window of a stream, or of the connection.
func (m *model) grant(id uint32, n int) {
	m.mu.Lock()
	if id == 0 {
		m.credit += n
	} else {
		m.streams[id].credit += n
	}
	m.mu.Unlock()
	m.send(appendWord(nil, frameWindowUpdate, id, uint32(n)))
}

// read takes frames until all answers are over.
func (m *model) read() {
	for over := 0; over < testServer.MaxStreams; {
		fr, err := m.next()
		if err != nil {
			m.t.Error(err)
			return
		}
		m.mu.Lock()
		switch f := m.streams[fr.stream]; fr.kind {
		case frameSettings:
			m.lowered[0]()
			m.lowered = m.lowered[1:]
		case frameGoAway, frameReset:
			m.t.Errorf("stream %d: frame %d with code %v", fr.stream, fr.kind, Code(binary.BigEndian.Uint32(m.seen)))
		case frameData:
			m.credit -= fr.length
			f.credit -= fr.length
			if m.credit < 0 || f.credit < 0 && fr.length > 0 {
				m.t.Errorf("stream %d: %d bytes leave a credit of %d, and %d of the connection", fr.stream, fr.length, f.credit, m.credit)
			}
			for i, b := range m.seen {
				if b != byte(f.got+i) {
					m.t.Errorf("stream %d: another byte at %d", fr.stream, f.got+i)
					break
				}
			}
			if f.got += fr.length; fr.has(flagEndStream) {
				f.over = true
				if sent := <-f.sent; f.got != sent {
					m.t.Errorf("stream %d: %d bytes of %d", fr.stream, f.got, sent)
				}
			}
		}
		over = 0
		for _, f := range m.streams {
			if f.over || f.reset {
				over++
			}
		}
		m.mu.Unlock()
	}
}
