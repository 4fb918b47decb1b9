package spool_test

import (
	"bytes"
	"cmp"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"testing/iotest"
	"testing/synctest"

	"github.com/keyway-go/keyway/gateway/internal/spool"
)

// config is a [spool.Config] with further bounds of a pool.
type config struct {
	Memory, Files, PerSpool, Shares int64
	Dir                             string

	Head, OpenFiles int64 // 0 for those of every pool
}

func newPool(t testing.TB, cfg config) *spool.Pool {
	t.Helper()
	p, err := spool.NewPool(spool.Config{Memory: cfg.Memory, Files: cfg.Files, PerSpool: cfg.PerSpool, Shares: cfg.Shares, Dir: cmp.Or(cfg.Dir, t.TempDir())})
	if err != nil {
		t.Fatal(err)
	}
	if cfg.Head > 0 {
		p.SetHead(cfg.Head)
	}
	if cfg.OpenFiles > 0 {
		p.SetOpenFiles(cfg.OpenFiles)
	}
	return p
}

// nothing fails the test if p has something in use.
func nothing(t testing.TB, p *spool.Pool) {
	t.Helper()
	for _, r := range []spool.Resource{spool.Memory, spool.Disk, spool.Files} {
		if n := p.InUse(r); n != 0 {
			t.Errorf("resource %d: %d in use, want none", r, n)
		}
	}
}

func pattern(n int) []byte {
	b := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(b)
	return b
}

func TestReadersWhileWriting(t *testing.T) {
	p := newPool(t, config{Head: 4 << 10})
	s := p.Of(0).NewSpool()
	want := pattern(300_000)
	var done sync.WaitGroup
	for range 4 {
		r := s.NewReader()
		done.Go(func() {
			defer r.Close()
			if got, err := io.ReadAll(r); err != nil || !bytes.Equal(got, want) {
				t.Errorf("a reader got %d bytes, error %v, want %d", len(got), err, len(want))
			}
		})
	}
	for rest := want; len(rest) > 0; {
		n, err := s.Write(rest[:min(len(rest), 7_001)])
		if err != nil {
			t.Fatal(err)
		}
		rest = rest[n:]
	}
	s.CloseWrite(nil)
	done.Wait()
	if s.Len() != int64(len(want)) {
		t.Errorf("Len is %d, want %d", s.Len(), len(want))
	}
	s.Close()
	nothing(t, p)
}

func TestEndsOfReaders(t *testing.T) {
	broken := errors.New("broken off")
	for _, tt := range []struct {
		name string
		end  func(s *spool.Spool, r *spool.Reader)
		want error
	}{
		{"written", func(s *spool.Spool, _ *spool.Reader) { s.CloseWrite(nil) }, io.EOF},
		{"written twice", func(s *spool.Spool, _ *spool.Reader) { s.CloseWrite(nil); s.CloseWrite(broken) }, io.EOF},
		{"broken off", func(s *spool.Spool, _ *spool.Reader) { s.CloseWrite(broken) }, broken},
		{"closed", func(_ *spool.Spool, r *spool.Reader) { r.Close() }, spool.ErrClosed},
		{"spool closed", func(s *spool.Spool, _ *spool.Reader) { s.Close() }, spool.ErrClosed},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPool(t, config{})
				s := p.Of(0).NewSpool()
				r := s.NewReader()
				if _, err := s.Write([]byte("abc")); err != nil {
					t.Fatal(err)
				}
				if _, err := io.ReadFull(r, make([]byte, 3)); err != nil {
					t.Fatal(err)
				}
				ended := make(chan error, 1)
				go func() {
					_, err := r.Read(make([]byte, 1))
					ended <- err
				}()
				synctest.Wait()
				select {
				case err := <-ended:
					t.Fatalf("Read has not waited: %v", err)
				default:
				}
				tt.end(s, r)
				if err := <-ended; err != tt.want {
					t.Errorf("Read: %v, want %v", err, tt.want)
				}
				s.Close()
				r.Close()
				r.Close()
				nothing(t, p)
				if _, err := s.Write([]byte("d")); err != spool.ErrClosed {
					t.Errorf("Write to what has been closed: %v, want %v", err, spool.ErrClosed)
				}
				if _, err := s.NewReader().Read(make([]byte, 1)); err != spool.ErrClosed {
					t.Errorf("Read of what has been closed: %v, want %v", err, spool.ErrClosed)
				}
			})
		})
	}
}

func TestClosedWhileRead(t *testing.T) {
	p := newPool(t, config{Head: 10})
	s := p.Of(0).NewSpool()
	want := pattern(50_000)
	if _, err := s.Write(want); err != nil {
		t.Fatal(err)
	}
	s.CloseWrite(nil)
	r := s.NewReader()
	first := make([]byte, 20_000)
	if _, err := io.ReadFull(r, first); err != nil {
		t.Fatal(err)
	}
	s.Close()
	if p.InUse(spool.Files) != 1 {
		t.Error("the file has gone with a reader in it")
	}
	rest, err := io.ReadAll(r)
	if err != nil || !bytes.Equal(append(first, rest...), want) {
		t.Errorf("a reader of a closed spool got %d bytes more, error %v", len(rest), err)
	}
	r.Close()
	nothing(t, p)
}

func TestFilesHaveNoName(t *testing.T) {
	dir := t.TempDir()
	p := newPool(t, config{Head: 10, Dir: dir})
	s := p.Of(0).NewSpool()
	defer s.Close()
	if _, err := s.Write(pattern(1000)); err != nil {
		t.Fatal(err)
	}
	left, err := os.ReadDir(dir)
	if runtime.GOOS == "windows" { // it goes when it is closed
		s.Close()
		left, err = os.ReadDir(dir)
	}
	if err != nil || len(left) > 0 {
		t.Errorf("there is %v in the directory, error %v", left, err)
	}
}

// TestReadFrom compares it with Write: the same is kept, and the same charged.
func TestReadFrom(t *testing.T) {
	broken := errors.New("broken")
	for _, tt := range []struct {
		name string
		cfg  config
		in   io.Reader
		n    int64
		want error
	}{
		{"nothing", config{}, bytes.NewReader(nil), 0, nil},
		{"little", config{}, bytes.NewReader(pattern(100)), 100, nil},
		{"all in memory", config{}, iotest.OneByteReader(bytes.NewReader(pattern(64 << 10))), 64 << 10, nil},
		{"more than in memory", config{}, iotest.HalfReader(bytes.NewReader(pattern(300_000))), 300_000, nil},
		{"the end with the last bytes", config{}, iotest.DataErrReader(bytes.NewReader(pattern(300_000))), 300_000, nil},
		{"no memory", config{Memory: 1}, bytes.NewReader(pattern(300_000)), 300_000, nil},
		{"as long as may be", config{PerSpool: 100}, bytes.NewReader(pattern(100)), 100, nil},
		{"too long", config{PerSpool: 100}, bytes.NewReader(pattern(101)), 100, spool.ErrTooLong},
		{"too long for the files", config{Files: 100_000}, bytes.NewReader(pattern(300_000)), 64<<10 + 98_304, spool.ErrFull},
		{"breaks off", config{}, io.MultiReader(bytes.NewReader(pattern(100)), iotest.ErrReader(broken)), 100, broken},
		{"breaks off later", config{}, io.MultiReader(bytes.NewReader(pattern(100_000)), iotest.ErrReader(broken)), 100_000, broken},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := newPool(t, tt.cfg)
			s := p.Of(0).NewSpool()
			n, err := s.ReadFrom(tt.in)
			if n != tt.n || s.Len() != n || !errors.Is(err, tt.want) {
				t.Fatalf("%d bytes were read, Len %d, error %v; want %d, %v", n, s.Len(), err, tt.n, tt.want)
			}
			s.CloseWrite(nil)
			r := s.NewReader()
			if got, err := io.ReadAll(r); err != nil || !bytes.Equal(got, pattern(int(tt.n))) {
				t.Errorf("%d bytes are there, error %v, want %d", len(got), err, tt.n)
			}
			r.Close()
			s.Close()
			nothing(t, p)
		})
	}
}

// TestSlowReaderTakesLittle: who sends little by little is charged for that.
func TestSlowReaderTakesLittle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPool(t, config{})
		s := p.Of(0).NewSpool()
		in, out := io.Pipe()
		done := make(chan struct{})
		go func() {
			defer close(done)
			_, _ = s.ReadFrom(in)
		}()
		for _, step := range []struct {
			sent  int
			bound int64
		}{{1, 4 << 10}, {4 << 10, 16 << 10}, {16 << 10, 64 << 10}} {
			_, _ = out.Write(make([]byte, step.sent))
			synctest.Wait()
			if used := p.InUse(spool.Memory); used > step.bound {
				t.Errorf("after another %d bytes, %d are in memory, want at most %d", step.sent, used, step.bound)
			}
		}
		s.Close()
		out.Close()
		<-done
		nothing(t, p)
	})
}

func TestBounds(t *testing.T) {
	type share struct {
		of    spool.Resource
		most  int64 // of one client
		taken int64 // of it before
	}
	none := share{}
	for _, tt := range []struct {
		name   string
		cfg    config
		share  share
		writes []int // of 10,000 bytes each, what of them is taken
		want   error // of the last one
		memory int64 // in use then
		disk   int64
	}{
		{"per spool", config{PerSpool: 15_000}, none, []int{10_000, 5_000}, spool.ErrTooLong, 40_000, 0},
		{"per spool, in the file", config{PerSpool: 15_000, Head: 4096}, none, []int{10_000, 5_000}, spool.ErrTooLong, 4096, 10_904},
		{"files", config{Head: 4096, Files: 10_000}, none, []int{10_000, 0}, spool.ErrFull, 4096, 5_904},
		{"no memory: a file", config{Memory: 1000}, none, []int{10_000, 10_000}, nil, 0, 20_000},
		{"client's memory: a file", config{Memory: 100_000, Shares: 10}, share{spool.Memory, 10_000, 0}, []int{10_000, 10_000}, nil, 10_000, 10_000},
		{"client's disk", config{Head: 4096, Files: 40_000, Shares: 4}, share{spool.Disk, 10_000, 0}, []int{10_000, 0}, spool.ErrFull, 4096, 5_904},
		{"client's files", config{Head: 4096, OpenFiles: 4, Shares: 4}, share{spool.Files, 1, 1}, []int{4096, 0}, spool.ErrFull, 4096, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := newPool(t, tt.cfg)
			client := p.Of(0)
			if tt.share != none {
				client = p.Of(1)
			}
			if !client.Take(tt.share.of, tt.share.taken) {
				t.Fatal("the client has no share")
			}
			s, want := client.NewSpool(), pattern(10_000)
			var all []byte
			for i, taken := range tt.writes {
				n, err := s.Write(want)
				var wanted error
				if taken < len(want) {
					wanted = tt.want
				}
				if n != taken || !errors.Is(err, wanted) {
					t.Errorf("write %d took %d bytes, error %v, want %d, %v", i, n, err, taken, wanted)
				}
				all = append(all, want[:n]...)
			}
			if m, d := p.InUse(spool.Memory), p.InUse(spool.Disk); m != tt.memory || d != tt.disk {
				t.Errorf("%d bytes in memory and %d in files are in use, want %d and %d", m, d, tt.memory, tt.disk)
			}
			s.CloseWrite(nil)
			r := s.NewReader()
			if got, err := io.ReadAll(r); err != nil || !bytes.Equal(got, all) {
				t.Errorf("there are %d bytes, error %v, want %d", len(got), err, len(all))
			}
			if tt.share != none && client.Take(tt.share.of, tt.share.most) {
				t.Error("the client may take more than its share")
			}
			r.Close()
			s.Close()
			client.Give(tt.share.of, tt.share.taken)
			nothing(t, p)
			if !client.Take(tt.share.of, tt.share.most) {
				t.Error("the client's share is not given back")
			}
		})
	}
}

func TestOpenFiles(t *testing.T) {
	p := newPool(t, config{Head: 1, OpenFiles: 1})
	first, second := p.Of(0).NewSpool(), p.Of(0).NewSpool()
	defer second.Close()
	if _, err := first.Write(pattern(100)); err != nil {
		t.Fatal(err)
	}
	if n, err := second.Write(pattern(100)); n != 1 || !errors.Is(err, spool.ErrFull) {
		t.Fatalf("with too many files %d bytes were written, error %v", n, err)
	}
	first.Close()
	if n, err := second.Write(pattern(100)); n != 100 || err != nil {
		t.Fatalf("with one file less %d bytes were written, error %v", n, err)
	}
}

func TestDiskErrors(t *testing.T) {
	gone := errors.New("gone")
	for _, tt := range []struct {
		name   string
		create func() (*os.File, error)
	}{
		{"no file", func() (*os.File, error) { return nil, gone }},
		{"no writing", func() (*os.File, error) { return os.Open(os.DevNull) }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := newPool(t, config{Head: 50})
			p.SetCreate(tt.create)
			s, want := p.Of(0).NewSpool(), pattern(100)
			for range 2 {
				n, err := s.Write(want[s.Len():])
				if !errors.Is(err, spool.ErrFull) || s.Len() != 50 {
					t.Fatalf("%d bytes were written, error %v, want the 50 in memory", n, err)
				}
			}
			s.CloseWrite(nil)
			r := s.NewReader()
			if got, err := io.ReadAll(r); err != nil || !bytes.Equal(got, want[:50]) {
				t.Errorf("%d bytes are there, error %v", len(got), err)
			}
			r.Close()
			s.Close()
			nothing(t, p)
		})
	}
}

func TestNewPool(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "missing")
	if _, err := spool.NewPool(spool.Config{Dir: missing}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a directory that is not there: %v", err)
	}
	t.Setenv("TMPDIR", missing)
	t.Setenv("TMP", missing) // where Windows looks
	p, err := spool.NewPool(spool.Config{Memory: 300_000})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Usable(); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("Usable without a directory: %v", err)
	}
	s := p.Of(0).NewSpool()
	if n, err := s.Write(pattern(200_000)); err != nil {
		t.Errorf("without files %d bytes were written, error %v", n, err)
	}
	if n, err := s.Write(pattern(200_000)); !errors.Is(err, spool.ErrFull) {
		t.Errorf("over the bound of memory %d bytes were written, error %v", n, err)
	}
	s.Close()
	nothing(t, p)
}

func FuzzSpool(f *testing.F) {
	f.Add(uint16(100), []byte{30, 131, 200, 5, 140, 255, 64, 190})
	f.Add(uint16(1), []byte{127, 129, 127, 129})
	f.Add(uint16(9999), []byte{})
	f.Fuzz(func(t *testing.T, head uint16, steps []byte) {
		p := newPool(t, config{Head: int64(head), Dir: os.TempDir()})
		s := p.Of(0).NewSpool()
		data := pattern(1 << 10)
		var all bytes.Buffer
		type reader struct {
			*spool.Reader
			got []byte
		}
		readers := []*reader{{Reader: s.NewReader()}, {Reader: s.NewReader()}}
		for i, step := range steps {
			if step < 128 { // a write
				piece := data[i%100:][:int(step)*7]
				n, err := s.Write(piece)
				if n != len(piece) || err != nil {
					t.Fatalf("write of %d bytes: %d, %v", len(piece), n, err)
				}
				all.Write(piece)
				continue
			}
			r := readers[step%2]
			if len(r.got) == all.Len() {
				continue // it would wait
			}
			buf := make([]byte, int(step-127)*11)
			n, err := r.Read(buf)
			if err != nil || n == 0 {
				t.Fatalf("read: %d, %v", n, err)
			}
			r.got = append(r.got, buf[:n]...)
		}
		s.CloseWrite(nil)
		for _, r := range readers {
			rest, err := io.ReadAll(r)
			if got := append(r.got, rest...); err != nil || !bytes.Equal(got, all.Bytes()) {
				t.Fatalf("a reader got %d bytes, error %v, want %d", len(got), err, all.Len())
			}
			r.Close()
		}
		s.Close()
		nothing(t, p)
	})
}
