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
	nc     net.Conn
	yields bool
	wake   chan struct{}

	mu      sync.Mutex
	buf     []byte
	spare   []byte
	writing bool
}

func newCombiner(nc net.Conn, yields bool) *combiner {
	c := &combiner{nc: nc, yields: yields, wake: make(chan struct{}, 1)}
	go func() {
		for range c.wake {
			c.flush()
		}
	}()
	return c
}

func (c *combiner) send(id uint64, p []byte) {
	c.mu.Lock()
	c.buf = binary.BigEndian.AppendUint32(c.buf, uint32(len(p)))
	c.buf = binary.BigEndian.AppendUint64(c.buf, id)
	c.buf = append(c.buf, p...)
	busy := c.writing
	c.writing = true
	c.mu.Unlock()
	if !busy {
		c.wake <- struct{}{}
	}
}

func (c *combiner) flush() {
	for {
		if c.yields {
			runtime.Gosched()
		}
		c.mu.Lock()
		b := c.buf
		if len(b) == 0 {
			c.writing = false
			c.mu.Unlock()
			return
		}
		c.buf = c.spare[:0]
		c.mu.Unlock()
		c.nc.Write(b)
		c.spare = b
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

func startEcho(yields bool) func() (func() error, func(), error) {
	return func() (func() error, func(), error) {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, nil, err
		}
		go func() {
			nc, err := ln.Accept()
			if err != nil {
				return
			}
			out := newCombiner(nc, yields)
			frames(nc, func(id uint64, _ []byte) { go out.send(id, answer) })
		}()
		nc, err := net.Dial("tcp", ln.Addr().String())
		if err != nil {
			return nil, nil, err
		}
		out := newCombiner(nc, yields)
		var mu sync.Mutex
		waiting := map[uint64]chan struct{}{}
		go frames(nc, func(id uint64, _ []byte) {
			mu.Lock()
			ch := waiting[id]
			delete(waiting, id)
			mu.Unlock()
			ch <- struct{}{}
		})
		var last uint64
		request := head()
		do := func() error {
			ch := make(chan struct{}, 1)
			mu.Lock()
			last++
			id := last
			waiting[id] = ch
			mu.Unlock()
			out.send(id, request)
			<-ch
			return nil
		}
		return do, func() { nc.Close(); ln.Close() }, nil
	}
}
