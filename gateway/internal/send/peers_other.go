//go:build !linux

package send

import (
	"context"
	"syscall"
)

func limitUnacknowledged(context.Context, string, string, syscall.RawConn) error { return nil }
