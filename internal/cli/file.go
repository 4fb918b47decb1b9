package cli

import (
	"os"
	"slices"
	"strings"

	"github.com/keyway-go/keyway/internal/nearest"
	"github.com/keyway-go/keyway/internal/yamlfile"
)

// fileFlag is the name of the flag that names a file of settings.
const fileFlag = "config"

// File defines the flag --config: a file in YAML with the flags' names as keys,
// whose values stand behind those of the environment and the arguments.
func (f *Flags) File() {
	f.String(&f.file, fileFlag, "", "`file` with settings in YAML: the flags' names without dashes, such as listen: 127.0.0.1:8080; a flag that may be repeated takes a list. What the environment or a flag says counts in its place")
}

// fromFile sets the flags that the file of settings names, if there is one. It is
// the last of the arguments' or else the environment's.
func (f *Flags) fromFile(args []setting) error {
	if f.set.Lookup(fileFlag) == nil {
		return nil
	}
	name, source := os.Getenv(EnvName(fileFlag)), EnvName(fileFlag)
	for _, s := range args {
		if s.name == fileFlag {
			name, source = s.value, "--"+fileFlag
		}
	}
	if name == "" {
		return nil
	}
	text, err := yamlfile.Read(name)
	if err != nil {
		return Usagef("%s: %v", source, err)
	}
	doc, err := yamlfile.Parse(name, text)
	if err != nil {
		return Usagef("%v", err)
	}
	if root := doc.Root(); root.IsSet() {
		for _, setting := range root.Fields(nil) {
			f.setFromFile(setting)
		}
	}
	if err := doc.Err(); err != nil {
		return Usagef("%s", strings.ReplaceAll(err.Error(), "\n", "; "))
	}
	return nil
}

// setFromFile sets a flag. What is wrong is noted at the setting.
func (f *Flags) setFromFile(s yamlfile.Field) {
	def := f.set.Lookup(s.Name)
	switch {
	case s.Name == fileFlag:
		s.Key.Errorf("a file of settings cannot name another one (%s)", fileFlag)
		return
	case def == nil && slices.Contains(f.known(), s.Name):
		s.Key.Errorf("%s is no setting of %s, but of another program", s.Name, f.name)
		return
	case def == nil:
		s.Key.Errorf("unknown setting %s; the nearest one is %s (%s --help lists the flags, whose names they are)", s.Name, nearest.Name(s.Name, f.own()), f.name)
		return
	}
	l, isList := def.Value.(*list)
	_, isKeyring := def.Value.(*keyring)
	var values []string
	for _, item := range s.Value.List() {
		value, ok := item.Scalar()
		if !ok {
			return
		}
		values = append(values, strings.TrimSpace(value))
	}
	switch {
	case isKeyring:
		values = []string{strings.Join(values, ",")}
	case s.Value.IsList() && !isList:
		s.Key.Errorf("%s takes one value, not a list", s.Name)
		return
	case len(values) == 0:
		s.Key.Errorf("%s: empty list", s.Name)
		return
	}
	for _, value := range values {
		if err := def.Value.Set(value); err != nil {
			s.Value.Errorf("%s: %v", s.Name, err)
			return
		}
	}
	if isList {
		l.given = false // what comes later replaces the list
	}
}
