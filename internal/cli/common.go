package cli

import (
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strconv"
	"strings"
	"syscall"
)

// Log holds the flags of a command's log.
type Log struct {
	format string
	level  slog.Level
}

// Define defines --log and --log-level.
func (l *Log) Define(f *Flags) {
	f.Choice(&l.format, "log", "`format` of the log on standard error: text or json", "text", "json")
	f.Var((*level)(&l.level), "log-level", "lowest `level` that is logged: debug, info, warn or error")
}

// Logger returns the logger that the flags ask for, which writes to w.
func (l *Log) Logger(w io.Writer) *slog.Logger {
	options := &slog.HandlerOptions{Level: l.level}
	if l.format == "json" {
		return slog.New(slog.NewJSONHandler(w, options))
	}
	return slog.New(slog.NewTextHandler(w, options))
}

type level slog.Level

func (l *level) String() string { return strings.ToLower(slog.Level(*l).String()) }

func (l *level) Set(s string) error {
	if err := (*slog.Level)(l).UnmarshalText([]byte(s)); err != nil {
		return fmt.Errorf("%q is none of debug, info, warn, error", s)
	}
	return nil
}

// Keyring is the value of --gossip-key: one or more keys of 16, 24 or 32
// bytes, written as hex or base64 and separated by commas. The first one
// encrypts; all of them decrypt, so that a key can be changed without a gap.
type Keyring [][]byte

// String returns nothing, so that no help and no log shows a key.
func (k *Keyring) String() string { return "" }

// Set reads keys; what it reads replaces what was there.
func (k *Keyring) Set(s string) error {
	var keys Keyring
	for item := range strings.SplitSeq(s, ",") {
		key, err := decodeKey(strings.TrimSpace(item))
		if err != nil {
			return err
		}
		keys = append(keys, key)
	}
	*k = keys
	return nil
}

func decodeKey(s string) ([]byte, error) {
	decoders := []func(string) ([]byte, error){
		hex.DecodeString, base64.StdEncoding.DecodeString, base64.URLEncoding.DecodeString, base64.RawURLEncoding.DecodeString,
	}
	for _, decode := range decoders {
		if key, err := decode(s); err == nil && (len(key) == 16 || len(key) == 24 || len(key) == 32) {
			return key, nil
		}
	}
	return nil, errors.New("not a key of 16, 24 or 32 bytes in hex or base64 (try: openssl rand -hex 32)")
}

// Address is the value of a flag that holds host:port.
type Address string

func (a *Address) String() string { return string(*a) }

// Set accepts host:port with a number for a port; the host may be empty.
func (a *Address) Set(s string) error {
	_, port, err := net.SplitHostPort(s)
	if err != nil {
		return fmt.Errorf("%q is not host:port", s)
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return fmt.Errorf("%q: the port is not a number from 0 to 65535", s)
	}
	*a = Address(s)
	return nil
}

// Address defines a flag that holds host:port; an empty default means none.
func (f *Flags) Address(p *string, name, def, usage string) {
	*p = def
	f.Var((*Address)(p), name, usage)
}

// Listen listens on the TCP address that the flag holds. Its error names the
// address and the flag to change.
func Listen(flagName, addr string) (net.Listener, error) {
	l, err := net.Listen("tcp", addr)
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, fmt.Errorf("%s is in use by another process: choose another address with --%s", addr, flagName)
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return nil, fmt.Errorf("%s is not an address of this machine: choose another one with --%s", addr, flagName)
	case err != nil:
		return nil, fmt.Errorf("cannot listen on %s (--%s): %w", addr, flagName, err)
	}
	return l, nil
}
