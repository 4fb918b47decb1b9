package main

import (
	"bufio"
	"encoding/binary"
	"io"
	"net"
	"runtime"
	"sync"
)

// writerSchemes are ways to combine writes, each under a bare echo of 12-byte headers and small payloads: one
// goroutine writes what others queue, and before each write it yields to them, or does not.
func writerSchemes() []contestant {
	return []contestant{
		{"writer goroutine", startEcho(false)},
		{"writer goroutine that yields", startEcho(true)},
	}
}

// combiner collects frames and writes them together.
type combiner struct {
	wake chan struct{}

	mu  sync.Mutex
	buf []byte
}

func newCombiner(nc net.Conn, yields bool) *combiner {
	c := &combiner{wake: make(chan struct{}, 1)}
	go func() {
		var spare []byte
		for range c.wake {
			if yields {
				runtime.Gosched()
			}
			c.mu.Lock()
			b := c.buf
			c.buf = spare[:0]
			c.mu.Unlock()
			nc.Write(b)
			spare = b
		}
	}()
	return c
}

func (c *combiner) send(id uint64, p []byte) {
	c.mu.Lock()
	first := len(c.buf) == 0
	c.buf = binary.BigEndian.AppendUint32(c.buf, uint32(len(p)))
	c.buf = binary.BigEndian.AppendUint64(c.buf, id)
	c.buf = append(c.buf, p...)
	c.mu.Unlock()
	if first {
		c.wake <- struct{}{}
	}
}

// frames calls f for each frame that comes in.
func frames(nc net.Conn, f func(id uint64, p []byte)) {
	r := bufio.NewReaderSize(nc, 64<<10)
	var h [12]byte
	var p []byte
	for {
		if _, err := io.ReadFull(r, h[:]); err != nil {
			return
		}
		p = append(p[:0], make([]byte, binary.BigEndian.Uint32(h[:]))...)
		if _, err := io.ReadFull(r, p); err != nil {
			return
		}
		f(binary.BigEndian.Uint64(h[4:]), p)
	}
}

func startEcho(yields bool) starter {
	return func() (func() error, func(), error) {
		ln, err := listen()
		if err != nil {
			return nil, nil, err
		}
		go func() {
			if nc, err := ln.Accept(); err == nil {
				out := newCombiner(nc, yields)
				frames(nc, func(id uint64, _ []byte) { go out.send(id, answer) })
			}
		}()
		nc, err := net.Dial("tcp", ln.Addr().String())
		if err != nil {
			return nil, nil, err
		}
		out := newCombiner(nc, yields)
		var mu sync.Mutex
		waiting := make(map[uint64]chan struct{})
		go frames(nc, func(id uint64, _ []byte) {
			mu.Lock()
			defer mu.Unlock()
			close(waiting[id])
			delete(waiting, id)
		})
		var last uint64
		request := head()
		do := func() error {
			done := make(chan struct{})
			mu.Lock()
			last++
			id := last
			waiting[id] = done
			mu.Unlock()
			out.send(id, request)
			<-done
			return nil
		}
		return do, func() { nc.Close(); ln.Close() }, nil
	}
}
