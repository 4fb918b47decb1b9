package netutil

import "sync"

// Workers calls a function for one value after the other on goroutines that it
// keeps, because their stacks have grown.
type Workers[T any] struct {
	Run  func(T)
	Keep int // how many goroutines may wait for another value

	mu     sync.Mutex
	idle   []chan T
	closed bool
	wg     sync.WaitGroup
}

// Go calls Run with v on a goroutine.
func (w *Workers[T]) Go(v T) {
	w.mu.Lock()
	n := len(w.idle)
	if n == 0 {
		w.mu.Unlock()
		w.wg.Go(func() { w.work(v) })
		return
	}
	next := w.idle[n-1]
	w.idle = w.idle[:n-1]
	w.mu.Unlock()
	next <- v
}

// work runs until there are enough goroutines that wait, or Close is called.
func (w *Workers[T]) work(v T) {
	next := make(chan T, 1)
	for ok := true; ok; v, ok = <-next {
		w.Run(v)
		w.mu.Lock()
		if w.closed || len(w.idle) >= w.Keep {
			w.mu.Unlock()
			return
		}
		w.idle = append(w.idle, next)
		w.mu.Unlock()
	}
}

// Close ends the goroutines that wait. It may be called more than once.
func (w *Workers[T]) Close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	for _, next := range w.idle {
		close(next)
	}
	w.idle = nil
}

// Wait waits until no goroutine is left, after Close.
func (w *Workers[T]) Wait() { w.wg.Wait() }
