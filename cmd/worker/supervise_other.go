//go:build !linux

package main

import (
	"log/slog"
	"os"
	"time"

	"github.com/keyway-go/keyway/internal/cli"
)

func supervise([]string, string, time.Duration, *slog.Logger) error {
	return cli.Usagef("--supervise needs Linux")
}

func supervisor() *os.File { return nil }
