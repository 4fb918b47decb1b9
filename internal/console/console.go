// Package console is a [slog.Handler] for people who watch a terminal: a line is the
// time of day, a letter for the level, the message, and after two spaces key=value for each attribute.
package console

import (
	"context"
	"io"
	"log/slog"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"
)

// Options are options of a handler.
type Options struct {
	Level slog.Leveler // the lowest level that is logged; nil for info
	Color bool         // lines have colour, by ANSI's escape sequences
}

// HasColor reports whether what is written to w has colour: if [IsTerminal], unless the
// environment says otherwise by NO_COLOR (https://no-color.org) or TERM=dumb.
func HasColor(w io.Writer) bool {
	return os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb" && IsTerminal(w)
}

// IsTerminal reports whether somebody may watch what is written to w: it is a character
// device, and not [os.DevNull].
func IsTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	if err != nil || info.Mode()&os.ModeCharDevice == 0 {
		return false
	}
	null, err := os.Stat(os.DevNull)
	return err != nil || !os.SameFile(info, null)
}

// New returns a handler that writes to w, a line with each call of Write.
func New(w io.Writer, o Options) slog.Handler {
	if o.Level == nil {
		o.Level = slog.LevelInfo
	}
	return &handler{out: &output{w: w}, options: o}
}

// output is what a handler and those made of it share.
type output struct {
	mu sync.Mutex // held while a line is written
	w  io.Writer
}

type handler struct {
	out     *output
	options Options
	attrs   []byte // of WithAttrs, as they are written
	group   string // before the name of each attribute, with its dot
}

// Enabled implements [slog.Handler].
func (h *handler) Enabled(_ context.Context, l slog.Level) bool { return l >= h.options.Level.Level() }

// Handle implements [slog.Handler].
func (h *handler) Handle(_ context.Context, r slog.Record) error {
	b := make([]byte, 0, 256)
	if !r.Time.IsZero() {
		b = h.append(b, dim, r.Time.Format("15:04:05.000"))
		b = append(b, ' ')
	}
	letter, color := sign(r.Level)
	b = h.append(b, color, letter)
	b = append(b, ' ')
	b = h.append(b, messageColor(r.Level), Printable(r.Message))
	end := len(b)
	b = append(b, h.attrs...)
	r.Attrs(func(a slog.Attr) bool {
		b = h.appendAttr(b, h.group, a)
		return true
	})
	if len(b) > end {
		b = slices.Insert(b, end, ' ') // apart from the message
	}
	b = append(b, '\n')
	h.out.mu.Lock()
	defer h.out.mu.Unlock()
	_, err := h.out.w.Write(b)
	return err
}

// WithAttrs implements [slog.Handler].
func (h *handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	with := *h
	with.attrs = slices.Clip(h.attrs)
	for _, a := range attrs {
		with.attrs = h.appendAttr(with.attrs, h.group, a)
	}
	return &with
}

// WithGroup implements [slog.Handler].
func (h *handler) WithGroup(name string) slog.Handler {
	if name == "" {
		return h
	}
	with := *h
	with.group += name + "."
	return &with
}

// appendAttr appends an attribute, and each of a group as one of its own.
func (h *handler) appendAttr(b []byte, group string, a slog.Attr) []byte {
	a.Value = a.Value.Resolve()
	switch {
	case a.Equal(slog.Attr{}):
		return b
	case a.Value.Kind() == slog.KindGroup:
		if a.Key != "" {
			group += a.Key + "."
		}
		for _, inner := range a.Value.Group() {
			b = h.appendAttr(b, group, inner)
		}
		return b
	}
	b = append(b, ' ')
	b = h.append(b, dim, quoted(group+a.Key)+"=")
	return append(b, quoted(valueText(a.Value))...)
}

func valueText(v slog.Value) string {
	if v.Kind() == slog.KindTime {
		return v.Time().Format(time.RFC3339Nano)
	}
	return v.String()
}

// quoted returns s, in quotes if its end or its parts could be mistaken.
func quoted(s string) string {
	if s == "" || strings.ContainsFunc(s, func(r rune) bool { return r == ' ' || r == '=' || !isPlain(r) }) {
		return strconv.Quote(s)
	}
	return s
}

// Printable returns s with an escape, as strconv.Quote has them, in place of each character
// that would move a terminal's cursor, turn its text around or not be seen.
func Printable(s string) string {
	if utf8.ValidString(s) && !strings.ContainsFunc(s, unprintable) {
		return s
	}
	var b strings.Builder
	for len(s) > 0 {
		r, n := utf8.DecodeRuneInString(s)
		if unprintable(r) || n == 1 && r == utf8.RuneError {
			b.WriteString(strings.Trim(strconv.Quote(s[:n]), `"`))
		} else {
			b.WriteString(s[:n])
		}
		s = s[n:]
	}
	return b.String()
}

func unprintable(r rune) bool { return !strconv.IsPrint(r) }

func isPlain(r rune) bool {
	return r != '"' && r != '\\' && r != unicode.ReplacementChar && strconv.IsPrint(r)
}

// ANSI's codes of colours.
const (
	dim    = "2"
	bold   = "1"
	red    = "1;31"
	yellow = "33"
	green  = "32"
)

// append appends s in a colour, "" for none.
func (h *handler) append(b []byte, color, s string) []byte {
	if !h.options.Color || color == "" {
		return append(b, s...)
	}
	b = append(b, "\x1b["+color+"m"...)
	b = append(b, s...)
	return append(b, "\x1b[0m"...)
}

// sign returns what a level is shown as: the letter of the highest one of slog's own
// that is not above it, and what it exceeds that by.
func sign(l slog.Level) (letter, color string) {
	var base slog.Level
	switch {
	case l >= slog.LevelError:
		letter, color, base = "E", red, slog.LevelError
	case l >= slog.LevelWarn:
		letter, color, base = "W", yellow, slog.LevelWarn
	case l >= slog.LevelInfo:
		letter, color, base = "I", green, slog.LevelInfo
	default:
		letter, color, base = "D", dim, slog.LevelDebug
	}
	if l != base {
		letter += strconv.FormatInt(int64(l-base), 10)
	}
	return letter, color
}

func messageColor(l slog.Level) string {
	if l >= slog.LevelWarn {
		return bold
	}
	return ""
}
