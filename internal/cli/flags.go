// Package cli is what Keyway's commands share: long flags that an environment
// variable of the same name can set too, help in groups, exit codes and the
// two signals that end a process.
package cli

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
)

// envPrefix stands before the name of every environment variable: --log-level
// is KEYWAY_LOG_LEVEL.
const envPrefix = "KEYWAY_"

// UsageError is a mistake in the arguments or the environment. A command that
// returns one exits with 2.
type UsageError struct{ text string }

func (e *UsageError) Error() string { return e.text }

// Usagef returns a [UsageError].
func Usagef(format string, args ...any) error {
	return &UsageError{text: fmt.Sprintf(format, args...)}
}

// Flags is a command's set of flags. Each is defined once, with a variable
// that takes its default, its environment variable's value or the argument's,
// whichever comes last in this order.
type Flags struct {
	name   string
	about  string
	set    *flag.FlagSet
	groups []group
}

type group struct {
	title string
	names []string
}

// NewFlags returns an empty set for the command of that name. The text about
// heads its help.
func NewFlags(name, about string) *Flags {
	return &Flags{name: name, about: about, set: flag.NewFlagSet(name, flag.ContinueOnError)}
}

// Group starts a group: the flags defined from here on stand under its title
// in the help.
func (f *Flags) Group(title string) { f.groups = append(f.groups, group{title: title}) }

// Var defines a flag with a value of its own kind. In usage, a word in back
// quotes names the flag's value, as in package flag.
func (f *Flags) Var(v flag.Value, name, usage string) {
	if len(f.groups) == 0 {
		f.Group("Flags")
	}
	last := &f.groups[len(f.groups)-1]
	last.names = append(last.names, name)
	f.set.Var(v, name, usage)
}

// String defines a flag that holds any text.
func (f *Flags) String(p *string, name, def, usage string) {
	*p = def
	f.Var((*text)(p), name, usage)
}

// Int defines a flag that holds an integer of at least min.
func (f *Flags) Int(p *int, name string, def, min int, usage string) {
	*p = def
	f.Var(&integer{p, min}, name, usage)
}

// Bool defines a flag that is false by default and takes no value.
func (f *Flags) Bool(p *bool, name, usage string) { f.Var((*boolean)(p), name, usage) }

// Duration defines a flag that holds a duration of at least min, such as 1m30s.
func (f *Flags) Duration(p *time.Duration, name string, def, min time.Duration, usage string) {
	*p = def
	f.Var(&duration{p, min}, name, usage)
}

// Choice defines a flag that holds one of the choices, the first by default.
func (f *Flags) Choice(p *string, name, usage string, choices ...string) {
	*p = choices[0]
	f.Var(&choice{p, choices}, name, usage)
}

// List defines a flag that may be repeated and whose values may be lists
// separated by any of the characters in separators, if there are. What is given replaces
// the default.
func (f *Flags) List(p *[]string, name, separators string, def []string, usage string) {
	*p = def
	f.Var(&list{p: p, separators: separators}, name, usage)
}

// Parse reads the environment and then the arguments, in which it accepts
// flags only. For --help and --version it writes what is asked for to w and
// returns [flag.ErrHelp]; any other error is a [UsageError].
func (f *Flags) Parse(args []string, w io.Writer) error {
	if slices.ContainsFunc(args, isHelp) {
		f.help(w)
		return flag.ErrHelp
	}
	if slices.ContainsFunc(args, isVersion) {
		io.WriteString(w, version(f.name))
		return flag.ErrHelp
	}
	if err := f.checkEnvironment(os.Environ()); err != nil {
		return err
	}
	for _, g := range f.groups {
		for _, name := range g.names {
			if err := f.fromEnv(name); err != nil {
				return err
			}
		}
	}
	f.set.VisitAll(func(d *flag.Flag) {
		if l, ok := d.Value.(*list); ok {
			l.given = false
		}
	})
	for len(args) > 0 {
		rest, err := f.fromArgs(args)
		if err != nil {
			return err
		}
		args = rest
	}
	return nil
}

func isHelp(arg string) bool { return arg == "--help" || arg == "-help" || arg == "-h" }

func isVersion(arg string) bool { return arg == "--version" || arg == "-version" }

// EnvName returns the name of a flag's environment variable.
func EnvName(name string) string {
	return envPrefix + strings.ToUpper(strings.ReplaceAll(name, "-", "_"))
}

// fromEnv sets a flag from its environment variable; an empty variable counts
// as absent, since that is how compose files and manifests leave one out.
func (f *Flags) fromEnv(name string) error {
	value := os.Getenv(EnvName(name))
	if value == "" {
		return nil
	}
	if err := f.set.Lookup(name).Value.Set(value); err != nil {
		return Usagef("%s: %v", EnvName(name), err)
	}
	return nil
}

// fromArgs sets the flag at the head of args and returns what follows it.
func (f *Flags) fromArgs(args []string) ([]string, error) {
	head, rest := args[0], args[1:]
	name, dashed := strings.CutPrefix(head, "-")
	if !dashed || name == "" || head == "--" {
		return nil, Usagef("unexpected argument %q (%s --help lists the flags)", head, f.name)
	}
	name = strings.TrimPrefix(name, "-")
	name, value, hasValue := strings.Cut(name, "=")
	def := f.set.Lookup(name)
	if def == nil {
		return nil, Usagef("unknown flag --%s; the nearest one is --%s (%s --help lists the flags)", name, nearest(name, f.own()), f.name)
	}
	if _, isBool := def.Value.(*boolean); isBool && !hasValue {
		value, hasValue = "true", true
	}
	if !hasValue {
		if len(rest) == 0 {
			return nil, Usagef("--%s needs a value", name)
		}
		value, rest = rest[0], rest[1:]
	}
	if err := def.Value.Set(value); err != nil {
		return nil, Usagef("--%s: %v", name, err)
	}
	return rest, nil
}

func (f *Flags) help(w io.Writer) {
	fmt.Fprintf(w, "Usage: %s [flags]\n\n%s\n\n", f.name, strings.TrimSpace(f.about))
	fmt.Fprintf(w, "Each flag can be set by an environment variable too: %s and its name, as %s for\n", envPrefix, EnvName("log-level"))
	fmt.Fprintf(w, "--log-level. Where both are given, the flag counts. --version prints the version.\n")
	for _, g := range f.groups {
		fmt.Fprintf(w, "\n%s:\n", g.title)
		for _, name := range g.names {
			def := f.set.Lookup(name)
			value, usage := flag.UnquoteUsage(def)
			if _, isBool := def.Value.(*boolean); isBool {
				value = ""
			}
			fmt.Fprintf(w, "  %s\n        %s", strings.TrimSpace("--"+name+" "+value), strings.ReplaceAll(usage, "\n", "\n        "))
			if def.DefValue != "" && def.DefValue != "false" {
				fmt.Fprintf(w, " (default %s)", def.DefValue)
			}
			fmt.Fprintln(w)
		}
	}
}

type text string

func (t *text) String() string     { return string(*t) }
func (t *text) Set(s string) error { *t = text(s); return nil }

type boolean bool

func (b *boolean) String() string { return strconv.FormatBool(bool(*b)) }

func (b *boolean) Set(s string) error {
	v, err := strconv.ParseBool(s)
	if err != nil {
		return fmt.Errorf("%q is neither true nor false", s)
	}
	*b = boolean(v)
	return nil
}

type integer struct {
	p   *int
	min int
}

func (i *integer) String() string {
	if i.p == nil {
		return ""
	}
	return strconv.Itoa(*i.p)
}

func (i *integer) Set(s string) error {
	v, err := strconv.Atoi(s)
	if err != nil {
		return fmt.Errorf("%q is not an integer", s)
	}
	if v < i.min {
		return fmt.Errorf("%d is below %d", v, i.min)
	}
	*i.p = v
	return nil
}

type duration struct {
	p   *time.Duration
	min time.Duration
}

func (d *duration) String() string {
	if d.p == nil {
		return ""
	}
	return d.p.String()
}

func (d *duration) Set(s string) error {
	v, err := time.ParseDuration(s)
	if err != nil {
		return fmt.Errorf("%q is not a duration such as 500ms or 1m30s", s)
	}
	if v < d.min {
		return fmt.Errorf("%v is below %v", v, d.min)
	}
	*d.p = v
	return nil
}

type choice struct {
	p       *string
	choices []string
}

func (c *choice) String() string {
	if c.p == nil {
		return ""
	}
	return *c.p
}

func (c *choice) Set(s string) error {
	if !slices.Contains(c.choices, s) {
		return fmt.Errorf("%q is none of %s", s, strings.Join(c.choices, ", "))
	}
	*c.p = s
	return nil
}

type list struct {
	p          *[]string
	separators string
	given      bool
}

func (l *list) String() string {
	if l.p == nil {
		return ""
	}
	return strings.Join(*l.p, l.separator())
}

// separator returns what joins the values when they are shown.
func (l *list) separator() string {
	if l.separators == "" {
		return " "
	}
	return l.separators[:1]
}

func (l *list) Set(s string) error {
	items := strings.FieldsFunc(s, func(r rune) bool { return strings.ContainsRune(l.separators, r) })
	if len(items) == 0 {
		return errors.New("empty list")
	}
	for i, item := range items {
		items[i] = strings.TrimSpace(item)
	}
	if !l.given {
		*l.p = nil
	}
	l.given = true
	*l.p = append(*l.p, items...)
	return nil
}
