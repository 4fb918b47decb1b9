package spool

import "os"

// SetCreate lets p make its files by create.
func (p *Pool) SetCreate(create func() (*os.File, error)) { p.create = create }

// SetHead bounds the bytes of one spool in memory.
func (p *Pool) SetHead(n int64) { p.head = n }

// SetOpenFiles bounds the temporary files at one time.
func (p *Pool) SetOpenFiles(n int64) { p.bounds[Files] = n }
