//go:build !linux

package gateway

import (
	"context"
	"syscall"
)

func limitUnacknowledged(context.Context, string, string, syscall.RawConn) error { return nil }
