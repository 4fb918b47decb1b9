// Package yamlfile reads settings from YAML strictly: each mistake is an error with
// its line and column, and a field that is not known is one. Anchors, aliases, tags and
// more than one document are refused.
package yamlfile

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"

	"github.com/keyway-go/keyway/internal/nearest"
)

// MaxSize is the size in bytes of the largest file.
const MaxSize = 1 << 20

// Error is a mistake in a file.
type Error struct {
	File         string
	Line, Column int // from 1; 0 if that is not known
	Text         string
}

func (e *Error) Error() string {
	if e.Line == 0 {
		return e.File + ": " + e.Text
	}
	return fmt.Sprintf("%s:%d:%d: %s", e.File, e.Line, e.Column, e.Text)
}

// Document is a file that is being read, and the mistakes found in it so far.
type Document struct {
	name string
	root ast.Node
	errs []*Error
}

// Parse reads a file whose name is for errors. Its error is an [Error].
func Parse(name string, data []byte) (d *Document, err error) {
	defer func() {
		if v := recover(); v != nil { // the parser's own mistake
			d, err = nil, &Error{File: name, Text: notYAML + fmt.Sprint(v)}
		}
	}()
	if len(data) > MaxSize {
		return nil, &Error{File: name, Text: fmt.Sprintf("%d bytes, at most %d are read", len(data), MaxSize)}
	}
	f, err := parser.ParseBytes(data, 0)
	if err != nil {
		return nil, syntaxError(name, err)
	}
	d = &Document{name: name}
	for _, doc := range f.Docs {
		switch doc.Body.(type) {
		case nil, *ast.NullNode, *ast.CommentGroupNode:
			continue
		}
		if d.root != nil {
			return nil, d.errorAt(doc.Body, "a second document")
		}
		d.root = doc.Body
	}
	return d, nil
}

const notYAML = "this is not YAML: "

func syntaxError(name string, err error) error {
	if e, ok := errors.AsType[yaml.Error](err); ok {
		out := &Error{File: name, Text: notYAML + e.GetMessage()}
		if t := e.GetToken(); t != nil && t.Position != nil {
			out.Line, out.Column = t.Position.Line, t.Position.Column
		}
		return out
	}
	text, _, _ := strings.Cut(err.Error(), "\n")
	return &Error{File: name, Text: notYAML + text}
}

func (d *Document) errorAt(n ast.Node, text string) *Error {
	e := &Error{File: d.name, Text: text}
	if at := positionOf(n); at != nil {
		e.Line, e.Column = at.Line, at.Column
	}
	return e
}

// positionOf returns where a value begins, nil if that is not known.
func positionOf(n ast.Node) *token.Position {
	switch v := n.(type) {
	case nil:
		return nil
	case *ast.MappingNode:
		if len(v.Values) > 0 {
			return positionOf(v.Values[0].Key)
		}
	}
	if t := n.GetToken(); t != nil {
		return t.Position
	}
	return nil
}

// Root returns what the file holds.
func (d *Document) Root() Node { return Node{d, d.root} }

// Err returns the mistakes in their order in the file, one on each line, nil if there
// are none. They are of type [*Error].
func (d *Document) Err() error {
	slices.SortStableFunc(d.errs, func(a, b *Error) int {
		return cmp.Or(a.Line-b.Line, a.Column-b.Column)
	})
	var all []error
	for _, e := range d.errs {
		all = append(all, e)
	}
	return errors.Join(all...)
}

// Node is a value in a file. The zero Node is an absent value.
type Node struct {
	doc  *Document
	node ast.Node
}

// IsSet reports whether there is a value.
func (n Node) IsSet() bool { return n.node != nil }

// Line returns where the value begins, from 1; 0 if that is not known.
func (n Node) Line() int {
	if at := positionOf(n.node); at != nil {
		return at.Line
	}
	return 0
}

// Errorf records a mistake at the value.
func (n Node) Errorf(format string, args ...any) {
	n.doc.errs = append(n.doc.errs, n.doc.errorAt(n.node, fmt.Sprintf(format, args...)))
}

// Field is a member of a mapping.
type Field struct {
	Key   Node
	Name  string
	Value Node
}

// Fields returns the members of a mapping in their order, none of an absent one. Those whose
// name is not among known, if that is not nil, are mistakes, and left out. Parse has refused names that
// occur twice.
func (n Node) Fields(known []string) (list []Field) {
	v, ok := n.node.(*ast.MappingNode)
	if !ok {
		if n.IsSet() {
			n.Errorf("want fields, such as name: value")
		}
		return nil
	}
	for _, m := range v.Values {
		key := Node{n.doc, m.Key}
		name, ok := key.Text()
		switch {
		case !ok:
		case known != nil && !slices.Contains(known, name):
			key.Errorf("unknown field %q; the nearest one is %s", name, nearest.Name(name, known))
		default:
			list = append(list, Field{key, name, Node{n.doc, m.Value}})
		}
	}
	return list
}

// List returns the elements of a list, none of an absent one. A single text counts as a list of it.
func (n Node) List() (list []Node) {
	switch v := n.node.(type) {
	case nil:
		return nil
	case *ast.MappingNode:
		n.Errorf("want a list")
		return nil
	case *ast.SequenceNode:
		for _, element := range v.Values {
			list = append(list, Node{n.doc, element})
		}
		return list
	}
	return []Node{n}
}

// IsList reports whether the value is a list.
func (n Node) IsList() bool {
	_, ok := n.node.(*ast.SequenceNode)
	return ok
}

// Text is Scalar, but an empty text is none.
func (n Node) Text() (text string, ok bool) {
	if text, ok = n.Scalar(); ok && text == "" {
		n.Errorf("want a value")
		ok = false
	}
	return text, ok
}

// Scalar returns a text as it is meant, and any other scalar as it is written. ok is
// false if the value is none, which is noted.
func (n Node) Scalar() (text string, ok bool) {
	switch v := n.node.(type) {
	case *ast.StringNode:
		text = v.Value
	case *ast.LiteralNode:
		text = v.Value.Value
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.InfinityNode, *ast.NanNode:
		text = strings.TrimSpace(v.GetToken().Value)
	case nil, *ast.NullNode:
		n.Errorf("want a value")
		return "", false
	case *ast.AnchorNode, *ast.AliasNode, *ast.TagNode, *ast.MergeKeyNode:
		n.Errorf("anchors, aliases and tags are not understood here")
		return "", false
	default:
		n.Errorf("want a single value")
		return "", false
	}
	return text, true
}
