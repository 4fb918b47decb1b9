// Package cli is what Keyway's commands share: long flags that an environment
// variable of the same name can set too, help in groups, exit codes and the
// two signals that end a process.
package cli

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/keyway-go/keyway/internal/nearest"
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

// Flags is a command's set of flags. Each is defined once, with a variable that takes the last of
// these: its default, its value in a file of settings, its environment variable's, the argument's.
type Flags struct {
	name   string
	about  string
	set    *flag.FlagSet
	groups []group
	group  int    // the index of the group that flags are defined in
	file   string // of settings; "" for none

	Args  string   // that the command takes as well, as the help names them; "" for none
	Words []string // those that Parse has found: what is no flag, and all that follows --

	needs  map[string]string // by a flag, the one without which it has no effect
	shared []string          // flags that the environment has set
	tokens []func() error    // that read the files of tokens
}

type group struct {
	title string
	names []string
}

// NewFlags returns an empty set for the command of that name. The text about
// heads its help.
func NewFlags(name, about string) *Flags {
	return &Flags{name: name, about: about, set: flag.NewFlagSet(name, flag.ContinueOnError), needs: make(map[string]string)}
}

// Group starts a group, or continues the one of that title: the help lists the flags defined from
// here on under it.
func (f *Flags) Group(title string) {
	f.group = slices.IndexFunc(f.groups, func(g group) bool { return g.title == title })
	if f.group < 0 {
		f.group = len(f.groups)
		f.groups = append(f.groups, group{title: title})
	}
}

// Need makes the flags that define defines mistakes without the flag needed. The environment may have
// them all the same, since it may be that of several programs.
func (f *Flags) Need(needed string, define func()) {
	before := f.own()
	define()
	for _, name := range f.own() {
		if !slices.Contains(before, name) {
			f.needs[name] = needed
		}
	}
}

// checkNeeds refuses flags that have no effect.
func (f *Flags) checkNeeds() error {
	for _, name := range f.own() {
		needed, ok := f.needs[name]
		if ok && f.Stated(name) && !f.Stated(needed) && !slices.Contains(f.shared, name) {
			return Usagef("--%s has no effect without --%s", name, needed)
		}
	}
	return nil
}

// Var defines a flag with a value of its own kind. In usage, a word in back
// quotes names the flag's value, as in package flag.
func (f *Flags) Var(v flag.Value, name, usage string) {
	if len(f.groups) == 0 {
		f.Group("Flags")
	}
	g := &f.groups[f.group]
	g.names = append(g.names, name)
	f.set.Var(v, name, usage)
}

// String defines a flag that holds any text.
func (f *Flags) String(p *string, name, def, usage string) {
	addFlag(f, p, name, def, usage, func(s string) (string, error) { return s, nil })
}

// Token defines a flag that holds a token, and one with -file behind its name for a file with it.
func (f *Flags) Token(p *string, name, usage string) {
	file := new(string)
	f.String(p, name, "", usage)
	f.String(file, name+"-file", "", "`file` with the token of --"+name+", which then no list of processes shows")
	f.tokens = append(f.tokens, func() error {
		switch {
		case *file == "":
			return nil
		case *p != "":
			return Usagef("--%s and --%s-file exclude each other", name, name)
		}
		text, err := os.ReadFile(*file)
		if err != nil {
			return Usagef("--%s-file: %v", name, err)
		}
		if *p = strings.TrimSpace(string(text)); *p == "" {
			return Usagef("--%s-file: %s is empty", name, *file)
		}
		return nil
	})
}

// Int defines a flag that holds an integer of at least min.
func (f *Flags) Int(p *int, name string, def, min int, usage string) {
	addFlag(f, p, name, def, usage, atLeast(min, strconv.Atoi, "an integer"))
}

// Int64 is Int for a number that may be larger, such as one of bytes.
func (f *Flags) Int64(p *int64, name string, def, min int64, usage string) {
	addFlag(f, p, name, def, usage, atLeast(min, func(s string) (int64, error) { return strconv.ParseInt(s, 10, 64) }, "an integer"))
}

// Float is Int for a number that need not be whole.
func (f *Flags) Float(p *float64, name string, def, min, max float64, usage string) {
	parse := atLeast(min, func(s string) (float64, error) { return strconv.ParseFloat(s, 64) }, "a number")
	addFlag(f, p, name, def, usage, func(s string) (float64, error) {
		v, err := parse(s)
		if err == nil && !(v <= max) {
			err = fmt.Errorf("%v is above %v", v, max)
		}
		return v, err
	})
}

// Bool defines a flag that is false by default and takes no value.
func (f *Flags) Bool(p *bool, name, usage string) {
	addFlag(f, p, name, false, usage, func(s string) (bool, error) {
		v, err := strconv.ParseBool(s)
		if err != nil {
			return false, fmt.Errorf("%q is neither true nor false", s)
		}
		return v, nil
	})
}

// Duration defines a flag that holds a duration of at least min, such as 1m30s.
func (f *Flags) Duration(p *time.Duration, name string, def, min time.Duration, usage string) {
	addFlag(f, p, name, def, usage, atLeast(min, time.ParseDuration, "a duration such as 500ms or 1m30s"))
}

// Choice defines a flag that holds one of the choices, the first by default.
func (f *Flags) Choice(p *string, name, usage string, choices ...string) {
	addFlag(f, p, name, choices[0], usage, func(s string) (string, error) {
		if !slices.Contains(choices, s) {
			return "", fmt.Errorf("%q is none of %s", s, strings.Join(choices, ", "))
		}
		return s, nil
	})
}

// Address defines a flag that holds host:port with a number for a port; the
// host may be empty. An empty default means none.
func (f *Flags) Address(p *string, name, def, usage string) {
	addFlag(f, p, name, def, usage, func(s string) (string, error) { return s, checkAddress(s) })
}

func checkAddress(s string) error {
	_, port, err := net.SplitHostPort(s)
	if err != nil {
		return fmt.Errorf("%q is not host:port, such as 127.0.0.1:8080", s)
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return fmt.Errorf("%q: the port is not a number from 0 to 65535", s)
	}
	return nil
}

// Addresses defines a List of addresses, host:port or unix:///path.
func (f *Flags) Addresses(p *[]string, name string, def []string, usage string) {
	AddList(f, p, name, ", ", def, usage, func(s string) (string, error) {
		switch {
		case !strings.HasPrefix(s, "unix:"):
			return s, checkAddress(s)
		case !strings.HasPrefix(s, "unix:///"):
			return s, fmt.Errorf("%q is not unix:///path", s)
		}
		return s, nil
	})
}

// List is [AddList] for items of any text.
func (f *Flags) List(p *[]string, name, separators string, def []string, usage string) {
	AddList(f, p, name, separators, def, usage, func(s string) (string, error) { return s, nil })
}

// AddList defines a flag that may be repeated and whose values are lists separated by any of the
// characters in separators. parse reads an item. Given values replace the default.
func AddList[T any](f *Flags, p *[]T, name, separators string, def []T, usage string, parse func(string) (T, error)) {
	*p = def
	var given []T
	f.Var(&flagValue[[]T]{p, separators[:1], func(s string) ([]T, error) {
		items := strings.FieldsFunc(s, func(r rune) bool { return strings.ContainsRune(separators, r) })
		if len(items) == 0 {
			return nil, errors.New("empty list")
		}
		for _, item := range items {
			v, err := parse(strings.TrimSpace(item))
			if err != nil {
				return nil, err
			}
			given = append(given, v)
		}
		return given, nil
	}}, name, usage)
}

// Parse reads the arguments, which must all be flags unless the command takes others, then the environment, and
// then the file of settings; earlier sources win. For --help and --version it writes the text to w and returns
// [flag.ErrHelp]. Any other error is a [UsageError].
func (f *Flags) Parse(args []string, w io.Writer) error {
	flags := args
	if i := slices.Index(args, "--"); i >= 0 {
		flags = args[:i]
	}
	if slices.ContainsFunc(flags, isHelp) {
		f.help(w)
		return flag.ErrHelp
	}
	if slices.ContainsFunc(flags, isVersion) {
		io.WriteString(w, Version(f.name))
		return flag.ErrHelp
	}
	if err := f.checkEnvironment(os.Environ()); err != nil {
		return err
	}
	if err := f.readArgs(args); err != nil {
		return err
	}
	if err := f.readEnvironment(); err != nil {
		return err
	}
	if err := f.readFile(); err != nil {
		return err
	}
	for _, read := range f.tokens {
		if err := read(); err != nil {
			return err
		}
	}
	return f.checkNeeds()
}

func isHelp(arg string) bool { return arg == "--help" || arg == "-help" || arg == "-h" }

func isVersion(arg string) bool { return arg == "--version" || arg == "-version" }

// Stated reports whether an argument, the environment or a file has set a flag.
func (f *Flags) Stated(name string) (stated bool) {
	f.set.Visit(func(def *flag.Flag) { stated = stated || def.Name == name })
	return stated
}

func (f *Flags) readArgs(args []string) error {
	for len(args) > 0 {
		head := args[0]
		args = args[1:]
		name, dashed := strings.CutPrefix(head, "-")
		switch takes := f.Args != ""; {
		case takes && head == "--":
			f.Words = append(f.Words, args...)
			return nil
		case takes && !dashed:
			f.Words = append(f.Words, head)
			continue
		case !dashed, name == "", head == "--":
			return Usagef("unexpected argument %q (%s --help lists the flags)", head, f.name)
		}
		name, value, hasValue := strings.Cut(strings.TrimPrefix(name, "-"), "=")
		def := f.set.Lookup(name)
		if def == nil {
			return Usagef("unknown flag --%s; the nearest one is --%s (%s --help lists the flags)", name, nearest.Name(name, f.own()), f.name)
		}
		switch {
		case hasValue:
		case isBool(def):
			value = "true"
		case len(args) == 0:
			return Usagef("--%s needs a value", name)
		default:
			value, args = args[0], args[1:]
		}
		if err := f.set.Set(name, value); err != nil {
			return Usagef("--%s: %v", name, err)
		}
	}
	return nil
}

func isBool(def *flag.Flag) bool {
	_, ok := def.Value.(*flagValue[bool])
	return ok
}

// helpWidth is the length of a line of help in characters.
const helpWidth = 88

func (f *Flags) help(w io.Writer) {
	fmt.Fprintf(w, "Usage: %s [flags]\n\n%s\n\n", strings.TrimSpace(f.name+" "+f.Args), strings.TrimSpace(f.about))
	fmt.Fprintf(w, "Each flag can be set by an environment variable too: %s and its name, as %s for\n", envPrefix, EnvName("log-level"))
	fmt.Fprintf(w, "--log-level. Where both are given, the flag counts. --version prints the version.\n")
	if f.set.Lookup(fileFlag) != nil {
		fmt.Fprintf(w, "Flags may also stand in a file in YAML, see --config, which counts least.\n")
	}
	for _, g := range f.groups {
		fmt.Fprintf(w, "\n%s:\n", g.title)
		for _, name := range g.names {
			def := f.set.Lookup(name)
			what, usage := flag.UnquoteUsage(def)
			if isBool(def) {
				what = ""
			}
			if def.DefValue != "" && def.DefValue != "false" {
				usage += " (default " + def.DefValue + ")"
			}
			fmt.Fprintf(w, "  %s", strings.TrimSpace("--"+name+" "+what))
			column := helpWidth
			for word := range strings.FieldsSeq(usage) {
				if column += 1 + len(word); column > helpWidth {
					fmt.Fprint(w, "\n       ")
					column = len("        ") + len(word)
				}
				fmt.Fprint(w, " "+word)
			}
			fmt.Fprintln(w)
		}
	}
}

// flagValue is the value of a flag.
type flagValue[T any] struct {
	p     *T
	items string // what stands between the items of a list; "" if it is none
	parse func(string) (T, error)
}

// addFlag defines a flag whose value parse reads. The error of parse quotes what
// it was given.
func addFlag[T any](f *Flags, p *T, name string, def T, usage string, parse func(string) (T, error)) {
	*p = def
	f.Var(&flagValue[T]{p, "", parse}, name, usage)
}

func (v *flagValue[T]) separator() string { return v.items }

func (v *flagValue[T]) String() string {
	text := fmt.Sprint(*v.p)
	if v.items != "" {
		text = strings.ReplaceAll(strings.Trim(text, "[]"), " ", v.items)
	}
	return text
}

func (v *flagValue[T]) Set(s string) error {
	parsed, err := v.parse(s)
	if err == nil {
		*v.p = parsed
	}
	return err
}

// atLeast returns parse with a lower bound; kind is for errors.
func atLeast[T cmp.Ordered](min T, parse func(string) (T, error), kind string) func(string) (T, error) {
	return func(s string) (T, error) {
		v, err := parse(s)
		if err != nil {
			return v, fmt.Errorf("%q is not %s", s, kind)
		}
		if v < min {
			return v, fmt.Errorf("%v is below %v", v, min)
		}
		return v, nil
	}
}
