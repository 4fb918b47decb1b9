package spool

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
)

// Errors of a [Spool]. They can be compared with errors.Is.
var (
	// ErrFull means that a bound of the pool or the account is reached, or that the
	// temporary file could not be written.
	ErrFull = errors.New("spool: no room")

	// ErrTooLong means that Config.PerSpool is reached. It wraps ErrFull.
	ErrTooLong = fmt.Errorf("%w: too long", ErrFull)

	// ErrClosed means that the spool was closed before its end was written.
	ErrClosed = errors.New("spool: closed")
)

// Spool keeps bytes in the order of writing: the first ones in memory, the others in a temporary
// file without a name. One goroutine writes; any number read, each with a [Reader] of its own. Make
// one with [Account.NewSpool], and close it. Writing ends when end is set. memory and file stay until the
// spool is closed and has no users.
type Spool struct {
	account Account

	mu     sync.Mutex // guards what follows
	more   sync.Cond  // of mu: there is more to read, or there will be none
	memory []byte     // the first bytes
	file   *os.File   // those behind memory; nil if there are none
	size   int64
	end    error // what readers get at the end; nil while there may be more
	closed bool
	users  int // readers, and a Write under way: they need memory and file
	taken  [resources]int64
}

// Write implements [io.Writer]. It does not wait for readers. Without room its error wraps
// [ErrFull], and n bytes were written; they stay readable, and a later Write may find room.
func (s *Spool) Write(b []byte) (n int, err error) {
	s.mu.Lock()
	if s.end != nil || s.closed {
		s.mu.Unlock()
		return 0, ErrClosed
	}
	s.users++
	room := s.account.pool.cfg.PerSpool - s.size
	tooLong := int64(len(b)) > room
	if tooLong {
		b = b[:room]
	}
	n = s.rememberLocked(b)
	file, at := s.file, s.size-int64(len(s.memory))
	s.mu.Unlock()
	if n < len(b) {
		var written int
		written, err = s.append(file, b[n:], at)
		n += written
	}
	if err == nil && tooLong {
		err = ErrTooLong
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.users--
	s.freeLocked()
	return n, err
}

// ReadFrom implements [io.ReaderFrom]: it writes all that in has. While there is
// memory it reads into that, so that a slow reader takes no other.
func (s *Spool) ReadFrom(in io.Reader) (total int64, err error) {
	for {
		room := s.room()
		if room == nil {
			break
		}
		n, err := in.Read(room)
		s.fill(n)
		total += int64(n)
		switch {
		case err == io.EOF:
			return total, nil
		case err != nil:
			return total, err
		}
	}
	buf := copyBuffers.Get().(*[copySize]byte)
	defer copyBuffers.Put(buf)
	n, err := io.CopyBuffer(struct{ io.Writer }{s}, struct{ io.Reader }{in}, buf[:]) // not by ReadFrom or WriteTo
	return total + n, err
}

const copySize = 32 << 10

var copyBuffers = sync.Pool{New: func() any { return new([copySize]byte) }}

// room returns memory that fill has to be called for, nil if there is none.
func (s *Spool) room() []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	have, may := len(s.memory), s.account.pool.cfg.PerSpool-s.size
	if s.end != nil || s.closed || s.file != nil || may <= 0 || have == cap(s.memory) && !s.enlargeLocked(1) {
		return nil
	}
	s.users++
	return s.memory[have:min(int64(cap(s.memory)), int64(have)+may)]
}

// fill adds n bytes that stand in what room has returned.
func (s *Spool) fill(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.end == nil {
		s.memory = s.memory[:len(s.memory)+n]
		s.size += int64(n)
		s.more.Broadcast()
	}
	s.users--
	s.freeLocked()
}

// rememberLocked adds as much of b as there is memory for, and returns how much.
func (s *Spool) rememberLocked(b []byte) (n int) {
	if s.file != nil {
		return 0
	}
	for n < len(b) {
		free := cap(s.memory) - len(s.memory)
		if free == 0 && !s.enlargeLocked(len(b)-n) {
			break
		}
		took := min(cap(s.memory)-len(s.memory), len(b)-n)
		s.memory = append(s.memory, b[n:n+took]...)
		n += took
	}
	s.size += int64(n)
	if n > 0 {
		s.more.Broadcast()
	}
	return n
}

// enlargeLocked makes room in memory for about n bytes more: at first little, then for as
// much as has come at most four times.
func (s *Spool) enlargeLocked(n int) bool {
	have := cap(s.memory)
	want := int(min(int64(max(firstMemory, growth*have, have+n)), s.account.pool.head))
	if want <= have || !s.takeLocked(Memory, int64(want-have)) {
		return false
	}
	memory := make([]byte, len(s.memory), want)
	copy(memory, s.memory)
	s.memory = memory
	return true
}

// append writes b to the file, which is made if there is none.
func (s *Spool) append(file *os.File, b []byte, at int64) (n int, err error) {
	if !s.account.pool.files {
		return 0, ErrFull
	}
	s.mu.Lock()
	if !s.takeLocked(Disk, int64(len(b))) {
		s.mu.Unlock()
		return 0, ErrFull
	}
	room := file != nil || s.takeLocked(Files, 1)
	s.mu.Unlock()
	switch {
	case !room:
		err = ErrFull
	case file == nil:
		if file, err = s.account.pool.create(); err != nil {
			err = fmt.Errorf("%w: %w", ErrFull, err)
		}
	}
	if err == nil {
		if n, err = file.WriteAt(b, at); err != nil {
			err = fmt.Errorf("%w: %w", ErrFull, err)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.giveLocked(Disk, int64(len(b)-n))
	s.file = file
	if file == nil && room {
		s.giveLocked(Files, 1)
	}
	s.size += int64(n)
	s.more.Broadcast()
	return n, err
}

// CloseWrite ends writing. Readers get err at the end, io.EOF if it is nil.
func (s *Spool) CloseWrite(err error) {
	if err == nil {
		err = io.EOF
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.end == nil {
		s.end = err
	}
	s.more.Broadcast()
}

// Len returns how many bytes have been written.
func (s *Spool) Len() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.size
}

// Close ends the use of the spool: no further writes and readers are possible. Present readers may
// read to the end; if the spool is incomplete, they get [ErrClosed] there. Memory and file are
// freed when the last of them is done. Close may be called more than once, and during a Write.
func (s *Spool) Close() error {
	s.CloseWrite(ErrClosed)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	s.freeLocked()
	return nil
}

func (s *Spool) freeLocked() {
	if !s.closed || s.users > 0 {
		return
	}
	if s.file != nil {
		remove(s.file)
		s.file = nil
	}
	s.memory = nil
	for r := range resources {
		s.giveLocked(r, s.taken[r])
	}
}

func (s *Spool) takeLocked(r Resource, n int64) bool {
	if !s.account.Take(r, n) {
		return false
	}
	s.taken[r] += n
	return true
}

func (s *Spool) giveLocked(r Resource, n int64) {
	if n == 0 {
		return
	}
	s.taken[r] -= n
	s.account.Give(r, n)
}
