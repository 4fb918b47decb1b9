// Package console is a [slog.Handler] for terminals. A line has the time of day, a letter for the
// level, the message, and after two spaces key=value for each attribute.
package console

import (
	"io"
	"log/slog"
	"os"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"
)

// HasColor reports whether what is written to w has colour: if [IsTerminal], unless the
// environment says otherwise by NO_COLOR (https://no-color.org) or TERM=dumb.
func HasColor(w io.Writer) bool {
	return os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb" && IsTerminal(w)
}

// IsTerminal reports whether w may be a terminal: it is a character device other than [os.DevNull].
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

// New returns a handler that writes to w, a line with each call of Write; in colour by ANSI's escape
// sequences.
func New(w io.Writer, options *slog.HandlerOptions, color bool) slog.Handler {
	return slog.NewTextHandler(lines{w, color}, options)
}

// lines writes each line of a [slog.TextHandler] to w as people read it.
type lines struct {
	w     io.Writer
	color bool
}

const word = `("(?:[^"\\]|\\.)*"|[^ "]*)` // is quoted if its end or its parts could be mistaken

var (
	written   = regexp.MustCompile(`^(?:time=\S{10}T(\S{12})\S* )?level=([A-Z])[A-Z]*\+?(-?\d*) msg=` + word + `(.*)\n$`)
	attribute = regexp.MustCompile(` (` + word + `=)` + word)
)

// Write implements [io.Writer].
func (l lines) Write(line []byte) (int, error) {
	m := written.FindSubmatch(line)
	if m == nil {
		return l.w.Write(line)
	}
	at, letter, above, message, attrs := string(m[1]), string(m[2]), string(m[3]), plain(string(m[4])), string(m[5])
	if at != "" {
		at = l.paint(dim, at) + " "
	}
	if attrs != "" && l.color {
		attrs = attribute.ReplaceAllString(attrs, " "+l.paint(dim, "$1")+"$3")
	}
	if attrs != "" {
		attrs = " " + attrs // apart from the message
	}
	if letter == "W" || letter == "E" {
		message = l.paint(bold, message)
	}
	_, err := io.WriteString(l.w, at+l.paint(colors[letter], letter+above)+" "+message+attrs+"\n")
	return len(line), err
}

// plain returns a message without quotes.
func plain(s string) string {
	text, err := strconv.Unquote(s)
	if err != nil {
		return s
	}
	return Printable(text)
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

// ANSI's codes of colours.
const dim, bold = "2", "1"

var colors = map[string]string{"E": "1;31", "W": "33", "I": "32", "D": dim}

func (l lines) paint(color, s string) string {
	if !l.color {
		return s
	}
	return "\x1b[" + color + "m" + s + "\x1b[0m"
}
