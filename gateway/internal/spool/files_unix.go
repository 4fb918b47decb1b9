//go:build unix

package spool

import "os"

// unlink takes the file's name away: it ends with its descriptor.
func unlink(f *os.File) error {
	err := os.Remove(f.Name())
	if err != nil {
		f.Close()
	}
	return err
}

func remove(f *os.File) { f.Close() }
