package cli_test

import (
	"io"
	"syscall"
	"testing"

	"github.com/keyway-go/keyway/internal/cli"
)

// A SIGHUP that comes while a program starts does not end it: what can be read again is, once it runs.
func TestHangupDuringTheStart(t *testing.T) {
	var c cli.Common
	f := cli.NewFlags("program", "About.")
	c.Define(f, "127.0.0.1:0", nil)
	if err := c.Parse(f, nil, io.Discard); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(syscall.Getpid(), syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	told := make(chan bool, 1)
	c.OnLook(func(hangup bool) {
		if hangup {
			told <- true
		}
	})
	_, stop := c.Logger(io.Discard)
	defer stop()
	<-told
}
