// Package ctl is the command ctl of the programs: it asks an admin address what a
// cluster does, and shows that to people as tables, or as it came with --json.
package ctl

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/keyway-go/keyway/internal/cli"
	"github.com/keyway-go/keyway/internal/console"
	"github.com/keyway-go/keyway/internal/nearest"
)

const about = `Ctl asks a running router or worker about the cluster, at its admin address.

  members           the members of the cluster
  ring              how many partitions the ring gives each worker
  workers           what each worker tells of itself
  moves             partitions that moved lately, and why
  hot               the keys that workers were asked for most lately
  loads             the partitions that take most of the cluster's time, and each worker's load
  explain KEY       what becomes of requests for a key, and why they wait
  explain --request 'POST http://shop.example/orders/42'
                    the same of a request, with the key that routes find in it
  locks             keys that are locked, a page at a time (--after KEY: the next one)
  unlock KEY        release the locks of a key whose holders are lost; they find them gone
  quarantine        keys that have no executions, since workers have died of some
  release KEY       end the quarantine of a key
  drain NAME        take a worker off the ring; returns when it is empty
  undrain NAME      put it back
  place PARTITION NAME
                    make a worker own a partition, in place of the one by the ring
  unplace PARTITION let it go by the ring again
  health            exit with 0 if the process is up, with --ready if it is ready

It exits with 0, with 1 if what was asked for failed, and with 2 for a mistake in the
arguments.`

// question is one call of ctl: its flags and arguments, and where to print.
type question struct {
	admin   string
	token   string
	asJSON  bool
	ready   bool
	timeout time.Duration
	request string
	header  []string
	body    string
	client  string
	after   string

	name   string // of the program, as in "router ctl"
	ctx    context.Context
	stdout io.Writer
	bold   func(string) string
}

// command is a command of ctl.
type command struct {
	name string
	args string // what it takes
	run  func(a *question, args []string) error
}

func commands() []command {
	return []command{
		{"members", "", page("/members", membersTable)},
		{"ring", "", page("/ring", ringTable)},
		{"workers", "", (*question).workers},
		{"moves", "", page("/moves", movesTable)},
		{"hot", "", page("/hot", hotTable)},
		{"loads", "", page("/loads", loadsTable)},
		{"locks", "", (*question).locks},
		{"unlock", "KEY", (*question).unlock},
		{"quarantine", "", page("/workers", quarantineTable)},
		{"release", "KEY", order("/release", "key %q: %s", "key")},
		{"explain", "KEY", (*question).explain},
		{"drain", "NAME", order("/drain", "%s: %s", "worker")},
		{"undrain", "NAME", order("/undrain", "%s: %s", "worker")},
		{"place", "PARTITION NAME", order("/place", "partition %[1]s: %[3]s at %[2]s", "partition", "worker")},
		{"unplace", "PARTITION", order("/unplace", "partition %s: %s", "partition")},
		{"health", "", (*question).health},
	}
}

// Run is the command ctl of a program whose admin address is at admin by default.
func Run(ctx context.Context, program, admin string, args []string, stdout io.Writer) error {
	a := &question{name: program + " ctl", ctx: ctx, stdout: stdout}
	f := cli.NewFlags(a.name, about)
	f.Args = "COMMAND"
	f.Group("Where")
	f.Address(&a.admin, "admin", admin, "`address` of a router or worker, as in its --admin")
	f.Token(&a.token, "admin-token", "`token` of its --admin-token, for what changes something, and for a name that its --admin-host does not list")
	f.Group("Command")
	f.Duration(&a.timeout, "wait", 10*time.Second, time.Millisecond, "`time` to wait for the answer; drain waits for as long as it takes")
	f.Bool(&a.asJSON, "json", "show the answer as it came")
	f.Bool(&a.ready, "ready", "health: ask whether the process is ready, not only up")
	f.String(&a.request, "request", "", "explain: `request`, such as 'POST http://shop.example/orders/42', in place of a key")
	f.Need("request", func() {
		f.List(&a.header, "header", "\n", nil, "explain: `field` of --request, such as 'X-Key: 7'; may be repeated")
		f.String(&a.body, "body", "", "explain: `body` of --request")
		f.String(&a.client, "client", "", "explain: `address` from which --request comes")
	})
	f.String(&a.after, "after", "", "locks: `key` after which the list goes on, as the page before it says")
	if err := f.Parse(args, stdout); err != nil {
		return err
	}
	if slices.Equal(f.Words, []string{"help"}) {
		return f.Parse([]string{"--help"}, stdout)
	}
	a.bold = func(s string) string { return s }
	if console.HasColor(stdout) {
		a.bold = func(s string) string { return "\x1b[1m" + s + "\x1b[0m" }
	}
	return a.dispatch(f.Words)
}

func (a *question) dispatch(words []string) error {
	var names []string
	for _, c := range commands() {
		names = append(names, c.name)
	}
	if len(words) == 0 {
		return cli.Usagef("ctl needs a command: %s (%s --help says more)", strings.Join(names, ", "), a.name)
	}
	i := slices.Index(names, words[0])
	if i < 0 {
		return cli.Usagef("ctl has no command %q; the nearest one is %s (%s --help lists them)", words[0], nearest.Name(words[0], names), a.name)
	}
	c, args := commands()[i], words[1:]
	if c.name == "explain" && a.request != "" {
		c.args = ""
	}
	switch want := strings.Fields(c.args); {
	case len(args) < len(want):
		return cli.Usagef("ctl %s needs %s: call it as %s %s %s", c.name, want[len(args)], a.name, c.name, c.args)
	case len(args) > len(want):
		return cli.Usagef("ctl %s does not take %q (%s --help says what it takes)", c.name, args[len(want)], a.name)
	case slices.Contains(args, ""):
		return cli.Usagef("ctl %s has an empty argument: call it as %s %s %s", c.name, a.name, c.name, c.args)
	}
	return c.run(a, args)
}

// base returns the URL of the admin address. One that stands for all addresses of a
// machine is reached at the loopback's.
func (a *question) base() string {
	host, port, _ := net.SplitHostPort(a.admin)
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
		if ip != nil && ip.To4() == nil {
			host = "::1"
		}
	}
	return "http://" + net.JoinHostPort(host, port)
}

// maxAnswer is how many bytes of an answer are read.
const maxAnswer = 64 << 20

// call sends a request, and returns the body of its answer if that is 200.
func (a *question) call(method, path string, query url.Values) ([]byte, error) {
	ctx := a.ctx
	if path != "/drain" {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, a.timeout)
		defer cancel()
	}
	target := a.base() + path
	if len(query) > 0 {
		target += "?" + query.Encode()
	}
	req, err := http.NewRequestWithContext(ctx, method, target, nil)
	if err != nil {
		return nil, err
	}
	if a.token != "" {
		req.Header.Set("Authorization", "Bearer "+a.token)
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.Proxy = nil
	defer transport.CloseIdleConnections()
	res, err := (&http.Client{Transport: transport}).Do(req)
	if err != nil {
		if e, ok := errors.AsType[*url.Error](err); ok {
			err = e.Err // without the request
		}
		return nil, fmt.Errorf("nobody answers at %s: %w; say with --admin where a router or a worker has its admin address", a.admin, err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer))
	text := strings.TrimSpace(string(body))
	switch {
	case err != nil:
		return nil, fmt.Errorf("the answer of %s broke off: %w", a.admin, err)
	case res.StatusCode == http.StatusUnauthorized:
		return nil, fmt.Errorf("%s needs a token: give --admin-token or --admin-token-file the token of the process at that address", a.admin)
	case method == http.MethodGet && (res.StatusCode == http.StatusNotFound || res.StatusCode == http.StatusBadRequest && len(query) == 0):
		return nil, fmt.Errorf("%s has no %s: is it the admin address (--admin) of a router or worker of this version?", a.admin, path)
	case res.StatusCode != http.StatusOK:
		return nil, errors.New(cmp.Or(text, res.Status))
	}
	return body, nil
}

// order returns the command that has something done to what its arguments name, which are these parameters of
// the path. format has the arguments and the answer.
func order(path, format string, names ...string) func(a *question, args []string) error {
	return func(a *question, args []string) error {
		query, object, shown := url.Values{"by": {whoAsks()}}, map[string]string{}, []any{}
		for i, name := range names {
			query.Set(name, args[i])
			object[name] = args[i]
			shown = append(shown, args[i])
		}
		body, err := a.call(http.MethodPost, path, query)
		object["done"] = strings.TrimSpace(string(body))
		return a.said(err, fmt.Sprintf(format, append(shown, object["done"])...), object)
	}
}

// said shows what a process has answered in words, with --json as an object.
func (a *question) said(err error, text string, object map[string]string) error {
	switch {
	case err != nil:
		return err
	case a.asJSON:
		return json.NewEncoder(a.stdout).Encode(object)
	}
	_, err = fmt.Fprintln(a.stdout, console.Printable(text))
	return err
}

func (a *question) health([]string) error {
	path := "/healthz"
	if a.ready {
		path = "/readyz"
	}
	body, err := a.call(http.MethodGet, path, nil)
	text := strings.TrimSpace(string(body))
	return a.said(err, text, map[string]string{"health": text})
}
