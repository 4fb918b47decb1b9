//go:build !linux

package main

import (
	"log/slog"

	"github.com/keyway-go/keyway/internal/cli"
)

func supervise([]string, *slog.Logger) error { return cli.Usagef("--supervise needs Linux") }
