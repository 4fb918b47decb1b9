package localmutex

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestMutex(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := Mutex{PerKey: 1}
		if !m.TryLock("a") || m.TryLock("a") || !m.TryLock("b") {
			t.Fatal("TryLock takes what is held, or not what is free")
		}
		if n := m.Len(); n != 2 {
			t.Errorf("Len is %d", n)
		}
		ctx, cancel := context.WithCancel(t.Context())
		result := make(chan error, 1)
		go func() { result <- m.Lock(ctx, "a") }()
		synctest.Wait()
		if n := m.Queued("a"); n != 1 {
			t.Errorf("%d wait", n)
		}
		if err := m.Lock(ctx, "a"); !errors.Is(err, ErrQueueFull) {
			t.Errorf("Lock with a full queue: %v", err)
		}
		cancel()
		if err := <-result; err != context.Canceled {
			t.Errorf("Lock with a cancelled context: %v", err)
		}
		go func() { result <- m.Lock(t.Context(), "a") }()
		synctest.Wait()
		m.Unlock("a")
		if err := <-result; err != nil {
			t.Errorf("Lock: %v", err)
		}
		m.Unlock("a")
		m.Unlock("b")
		if n := m.Len(); n != 0 {
			t.Errorf("%d keys are left", n)
		}
	})
}

func TestMutexUnlockPanics(t *testing.T) {
	defer func() {
		if text, _ := recover().(string); !strings.Contains(text, `"k", which is not held`) {
			t.Errorf("panicked with %q", text)
		}
	}()
	var m Mutex
	m.Unlock("k")
}

func TestMutexAllocates(t *testing.T) {
	var m Mutex
	ctx := t.Context()
	if n := testing.AllocsPerRun(100, func() { _ = m.Lock(ctx, "k"); m.Unlock("k") }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestMutexIsWaitedForSoLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := Mutex{Total: 1, MaxWait: time.Second}
		if !m.TryLock("a") || !m.TryLock("b") {
			t.Fatal("a free key is not taken")
		}
		waited := make(chan error, 1)
		go func() { waited <- m.Lock(t.Context(), "a") }()
		synctest.Wait()
		if err := m.Lock(t.Context(), "b"); !errors.Is(err, ErrQueueFull) {
			t.Errorf("Lock beyond Total: %v", err)
		}
		if err := <-waited; !errors.Is(err, ErrWaited) {
			t.Errorf("Lock beyond MaxWait: %v", err)
		}
	})
}

func BenchmarkMutex(b *testing.B) {
	var m Mutex
	ctx := context.Background()
	b.ReportAllocs()
	for b.Loop() {
		_ = m.Lock(ctx, "order-4711")
		m.Unlock("order-4711")
	}
}
