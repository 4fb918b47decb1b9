package cli

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"

	"github.com/keyway-go/keyway/internal/nearest"
)

// maxFile is the size of the largest file of settings that is read.
const maxFile = 1 << 20

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
	text, err := readFile(name)
	if err != nil {
		return Usagef("%s: %v", source, err)
	}
	settings, err := parseFile(text)
	if err != nil {
		return Usagef("%s:%v", name, err)
	}
	for _, s := range settings {
		if err := f.setFromFile(s); err != nil {
			return Usagef("%s:%d: %v", name, s.line, err)
		}
	}
	return nil
}

// readFile returns the content of a file that is not too large.
func readFile(name string) ([]byte, error) {
	in, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	text, err := io.ReadAll(io.LimitReader(in, maxFile+1))
	if err == nil && len(text) > maxFile {
		err = fmt.Errorf("%s has more than %d bytes", name, maxFile)
	}
	return text, err
}

// fileSetting is a flag that a file sets.
type fileSetting struct {
	name   string
	values []string
	listed bool // the file has a list
	line   int
}

// parseFile returns what a file sets, in its order. Its error begins with the line,
// and is itself one line.
func parseFile(text []byte) ([]fileSetting, error) {
	file, err := parser.ParseBytes(text, 0)
	if err != nil {
		line, message := 1, err.Error()
		if e, ok := errors.AsType[*yaml.SyntaxError](err); ok {
			line, message = e.Token.Position.Line, e.Message
		}
		message, _, _ = strings.Cut(message, "\n")
		return nil, fmt.Errorf("%d: this is not YAML: %s", line, message)
	}
	var settings []fileSetting
	for i, doc := range file.Docs {
		var entries []*ast.MappingValueNode
		switch body := doc.Body.(type) {
		case nil, *ast.NullNode, *ast.CommentGroupNode:
			continue
		case *ast.MappingNode:
			entries = body.Values
		case *ast.MappingValueNode:
			entries = []*ast.MappingValueNode{body}
		}
		if len(entries) == 0 || i > 0 {
			return nil, fmt.Errorf("%d: want settings such as listen: 127.0.0.1:8080, each on a line", lineOf(doc.Body))
		}
		for _, e := range entries {
			s, err := settingOf(e)
			if err != nil {
				return nil, fmt.Errorf("%d: %w", lineOf(e), err)
			}
			settings = append(settings, s)
		}
	}
	return settings, nil
}

// lineOf returns the line on which a node begins.
func lineOf(n ast.Node) int {
	if e, ok := n.(*ast.MappingValueNode); ok {
		n = e.Key
	}
	if t := n.GetToken(); t != nil && t.Position != nil {
		return t.Position.Line
	}
	return 1
}

// settingOf returns the setting of an entry.
func settingOf(e *ast.MappingValueNode) (s fileSetting, err error) {
	name, ok := scalar(e.Key)
	if !ok {
		return s, fmt.Errorf("a setting's name is text, this is %s", strings.ToLower(e.Key.Type().String()))
	}
	s.name, s.line = name, lineOf(e)
	if list, ok := e.Value.(*ast.SequenceNode); ok {
		s.listed = true
		for _, item := range list.Values {
			value, ok := scalar(item)
			if !ok {
				return s, fmt.Errorf("%s: an item of the list is %s, want text or a number", name, strings.ToLower(item.Type().String()))
			}
			s.values = append(s.values, value)
		}
		return s, nil
	}
	value, ok := scalar(e.Value)
	if !ok {
		return s, fmt.Errorf("%s: the value is %s, want text, a number, true or false, or a list of them", name, strings.ToLower(e.Value.Type().String()))
	}
	s.values = []string{value}
	return s, nil
}

// scalar returns a single value as it is written, without quotes.
func scalar(n ast.Node) (string, bool) {
	switch n := n.(type) {
	case *ast.StringNode:
		return n.Value, true
	case *ast.LiteralNode:
		return strings.TrimSpace(n.Value.Value), true
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode:
		return n.GetToken().Value, true
	}
	return "", false
}

// setFromFile sets a flag.
func (f *Flags) setFromFile(s fileSetting) error {
	def := f.set.Lookup(s.name)
	switch {
	case s.name == fileFlag:
		return fmt.Errorf("a file of settings cannot name another one (%s)", fileFlag)
	case def == nil && slices.Contains(f.known(), s.name):
		return fmt.Errorf("%s is no setting of %s, but of another program", s.name, f.name)
	case def == nil:
		return fmt.Errorf("unknown setting %s; the nearest one is %s (%s --help lists the flags, whose names they are)", s.name, nearest.Name(s.name, f.own()), f.name)
	}
	l, isList := def.Value.(*list)
	_, isKeyring := def.Value.(*keyring)
	switch {
	case isKeyring:
		s.values = []string{strings.Join(s.values, ",")}
	case s.listed && !isList:
		return fmt.Errorf("%s takes one value, not a list", s.name)
	case len(s.values) == 0:
		return fmt.Errorf("%s: empty list", s.name)
	}
	for _, value := range s.values {
		if err := def.Value.Set(value); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
	}
	if isList {
		l.given = false // what comes later replaces the list
	}
	return nil
}
