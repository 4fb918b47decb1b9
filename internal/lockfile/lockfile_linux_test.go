package lockfile_test

import (
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"

	"github.com/keyway-go/keyway/internal/lockfile"
)

// TestCopyOfTheFileSystem: a copy in another file system can have the inode of the file, as in a snapshot of a
// volume. It proves nothing.
func TestCopyOfTheFileSystem(t *testing.T) {
	runtime.LockOSThread() // for good: the mounts are those of the thread, which ends with the test
	if err := syscall.Unshare(syscall.CLONE_NEWNS); err != nil {
		t.Skip("no mounts of its own:", err)
	}
	if err := syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""); err != nil {
		t.Skip(err)
	}
	var paths []string
	var inodes []uint64
	for range 2 {
		dir := t.TempDir()
		if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, ""); err != nil {
			t.Skip(err)
		}
		defer syscall.Unmount(dir, syscall.MNT_DETACH)
		paths = append(paths, filepath.Join(dir, "lock"))
	}
	_, l, err := lockfile.Lock(paths[0], "this", 0)
	if err != nil || l.Write("LIVES") != nil {
		t.Fatal(err)
	}
	defer l.Close()
	content, err := os.ReadFile(paths[0])
	if err != nil || os.WriteFile(paths[1], content, 0o600) != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		var stat syscall.Stat_t
		if err := syscall.Stat(path, &stat); err != nil {
			t.Fatal(err)
		}
		inodes = append(inodes, stat.Ino)
	}
	t.Logf("the inodes are %v; if they differ, as in old kernels, they alone tell the files apart", inodes)
	if dead, err := lockfile.Witness(paths[1], "this"); len(dead) > 0 || err != nil {
		t.Errorf("a witness takes %v for dead, %v", dead, err)
	}
	previous, copied, err := lockfile.Lock(paths[1], "this", 0)
	if len(previous) > 0 || err != nil {
		t.Errorf("a process takes %v for its predecessor, %v", previous, err)
	}
	copied.Close()
}
