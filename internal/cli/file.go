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

// readFile sets the flags that are not set and that the file of settings names, if there is one.
func (f *Flags) readFile() error {
	if f.file == "" {
		return nil
	}
	text, err := os.ReadFile(f.file)
	if err != nil {
		return Usagef("--%s: %v", fileFlag, err)
	}
	doc, err := yamlfile.Parse(f.file, text)
	if err != nil {
		return Usagef("%v", err)
	}
	for _, setting := range doc.Root().Fields(nil) {
		f.setFromFile(setting)
	}
	if err := doc.Err(); err != nil {
		return Usagef("%s", OneLine(err))
	}
	return nil
}

// separated is a flag's value that a file may have as a list, unless the separator is "".
type separated interface{ separator() string }

// setFromFile sets a flag. Errors are recorded at the setting.
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
	var values []string
	for _, item := range s.Value.List() {
		value, ok := item.Scalar()
		if !ok {
			return
		}
		values = append(values, strings.TrimSpace(value))
	}
	separator := ""
	if list, ok := def.Value.(separated); ok {
		separator = list.separator()
	}
	if separator == "" && s.Value.IsList() {
		s.Key.Errorf("%s takes one value, not a list", s.Name)
		return
	}
	if f.Stated(s.Name) {
		return
	}
	if err := f.set.Set(s.Name, strings.Join(values, separator)); err != nil {
		s.Value.Errorf("%s: %v", s.Name, err)
	}
}
