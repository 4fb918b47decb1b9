//go:build !linux

package router

import (
	"context"
	"syscall"
)

func limitUnacknowledged(context.Context, string, string, syscall.RawConn) error { return nil }
