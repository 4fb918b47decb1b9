//go:build !unix

package spool

import "os"

// unlink does nothing: the name goes when the file is closed.
func unlink(*os.File) error { return nil }

func remove(f *os.File) {
	f.Close()
	_ = os.Remove(f.Name()) // should that fail, it is left to whoever cleans the directory
}
