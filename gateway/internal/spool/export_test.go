package spool

import "os"

// SetCreate lets p make its files by create.
func (p *Pool) SetCreate(create func() (*os.File, error)) { p.create = create }
