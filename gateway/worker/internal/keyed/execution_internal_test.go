package keyed

import (
	"testing"

	"github.com/keyway-go/keyway/ring"
)

type interrupts int

func (n *interrupts) Interrupt() { *n++ }

// What an execution begins to serve when it is cancelled already is interrupted at once: nobody
// else will do it.
func TestTrapServeAfterTheCancellation(t *testing.T) {
	p := &New(Config{Settings: ring.Settings{Ring: ring.Config{Partitions: 1}}}).Parts[0]
	c := &Context{admission: admission{part: p, cancels: p.Cancels.Load()}}
	var before, after interrupts
	c.Serve(&before)
	p.Cancels.Add(1)
	c.Serve(&after)
	if before != 0 || after != 1 {
		t.Errorf("interrupted %d times before the cancellation and %d times after it", before, after)
	}
}
