package lockfile

import (
	"fmt"
	"os"
	"slices"
	"sync/atomic"
	"syscall"
	"unsafe"
)

// localSystems are file systems whose files have one copy in memory, for all processes under a
// kernel: tmpfs, ext, XFS and overlay. They keep room for bytes that were written, so that no later
// write to mapped memory fails.
var localSystems = []uint32{0x01021994, 0xef53, 0x58465342, 0x794c7630}

func local(f *os.File) bool {
	var fs syscall.Statfs_t
	return syscall.Fstatfs(int(f.Fd()), &fs) == nil && slices.Contains(localSystems, uint32(fs.Type))
}

// mapCount returns the count in the header of f, in memory that stays mapped until the process ends,
// since executions may outlive what has the file. The header must be there before the first use. The
// mapping is one of the file opened anew, since it would keep the lock of f.
func mapCount(f *os.File) *atomic.Int64 {
	again, err := os.OpenFile(fmt.Sprintf("/proc/self/fd/%d", f.Fd()), os.O_RDWR, 0)
	if err != nil {
		return nil
	}
	defer again.Close()
	page, err := syscall.Mmap(int(again.Fd()), 0, headerSize, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	if err != nil {
		return nil
	}
	return (*atomic.Int64)(unsafe.Pointer(&page[len(headerMark)]))
}

// inode returns the numbers of f's file system and of f in it, "" if they are not known.
func inode(f *os.File) string {
	var stat syscall.Stat_t
	if syscall.Fstat(int(f.Fd()), &stat) != nil {
		return ""
	}
	return fmt.Sprintf("%d:%d", stat.Dev, stat.Ino)
}
