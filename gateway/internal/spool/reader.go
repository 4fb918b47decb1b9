package spool

import "os"

// Reader reads a [Spool] from its start. It is for one goroutine, but Close
// may be called by others.
type Reader struct {
	spool *Spool

	// The fields below are guarded by spool.mu.
	at     int64
	closed bool
}

// NewReader returns a reader of all that was and will be written, which the caller
// should close. If the spool is closed the reader's error is [ErrClosed].
func (s *Spool) NewReader() *Reader {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := &Reader{spool: s, closed: s.closed}
	if !r.closed {
		s.users++
	}
	return r
}

// Read implements [io.Reader]. If there is nothing to read it waits until there is.
func (r *Reader) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	n, file, at, err := r.next(p)
	if file == nil {
		return n, err
	}
	n, err = file.ReadAt(p[:n], at)
	s := r.spool
	s.mu.Lock()
	defer s.mu.Unlock()
	r.at += int64(n)
	switch {
	case r.closed:
		return n, ErrClosed
	case n > 0:
		return n, nil // what was written is there, so anything else is an error of the disk
	}
	return n, err
}

// next waits for something to read, and reads it if it is in memory. Else it
// returns a file, and which n bytes of it may be read into p.
func (r *Reader) next(p []byte) (n int, file *os.File, at int64, err error) {
	s := r.spool
	s.mu.Lock()
	defer s.mu.Unlock()
	for !r.closed && r.at == s.size && s.end == nil {
		s.more.Wait()
	}
	inMemory := int64(len(s.memory))
	switch {
	case r.closed:
		return 0, nil, 0, ErrClosed
	case r.at < inMemory:
		n = copy(p, s.memory[r.at:])
		r.at += int64(n)
		return n, nil, 0, nil
	case r.at < s.size:
		return int(min(int64(len(p)), s.size-r.at)), s.file, r.at - inMemory, nil
	}
	return 0, nil, 0, s.end
}

// Close ends reading. It may be called more than once; a Read under way fails.
func (r *Reader) Close() error {
	s := r.spool
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.closed {
		return nil
	}
	r.closed = true
	s.more.Broadcast()
	s.users--
	s.freeLocked()
	return nil
}
