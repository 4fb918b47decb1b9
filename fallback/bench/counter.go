package main

import (
	"bufio"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
)

// counter is a TCP proxy that counts the commands that clients send.
type counter struct {
	listener net.Listener
	target   string
	commands atomic.Int64
	running  sync.WaitGroup
}

func startCounter(target string) (*counter, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	c := &counter{listener: l, target: target}
	c.running.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			c.running.Go(func() { c.serve(client) })
		}
	})
	return c, nil
}

func (c *counter) serve(client net.Conn) {
	defer client.Close()
	server, err := net.Dial("tcp", c.target)
	if err != nil {
		return
	}
	defer server.Close()
	c.running.Go(func() {
		_, _ = io.Copy(client, server)
		_ = client.Close()
	})
	_ = c.count(bufio.NewReader(client), server)
}

// count forwards commands, which are RESP arrays of bulk strings.
func (c *counter) count(from *bufio.Reader, to net.Conn) error {
	out := bufio.NewWriter(to)
	number := func() (int, error) {
		line, err := from.ReadString('\n')
		if err != nil {
			return 0, err
		}
		_, _ = out.WriteString(line)
		return strconv.Atoi(strings.TrimSpace(line[1:]))
	}
	for {
		args, err := number()
		if err != nil {
			return err
		}
		for range args {
			size, err := number()
			if err != nil {
				return err
			}
			if _, err := io.CopyN(out, from, int64(size)+2); err != nil {
				return err
			}
		}
		c.commands.Add(1)
		if from.Buffered() == 0 {
			if err := out.Flush(); err != nil {
				return err
			}
		}
	}
}

// close ends the proxy; its connections end with their clients.
func (c *counter) close() {
	_ = c.listener.Close()
	c.running.Wait()
}
