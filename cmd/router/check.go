package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/internal/cli"
	"github.com/keyway-go/keyway/internal/keysource"
	"github.com/keyway-go/keyway/internal/routes"
	"github.com/keyway-go/keyway/ring"
)

const aboutCheck = `Router check FILE looks for mistakes in a file of --routes, and shows its routes. With
--request it says which of them a request takes, and with which key.`

// check is the command check. It returns a usage error for a file with mistakes.
func check(args []string, stdout io.Writer) error {
	var request string
	var headers []string
	partitions := ring.Settings{}.WithDefaults().Ring.Partitions
	f := cli.NewFlags("router check", aboutCheck)
	f.Args = "FILE"
	f.String(&request, "request", "", "`request`, such as 'POST http://shop.example/orders/42', whose route and key are shown")
	f.Need("request", func() {
		f.List(&headers, "header", "\n", nil, "`field` of that request, such as 'X-Key: 7'; may be repeated")
	})
	f.Int(&partitions, "partitions", partitions, 1, "`number` of partitions, as members have it")
	if err := f.Parse(args, stdout); err != nil {
		return err
	}
	switch {
	case len(f.Words) == 0:
		return cli.Usagef("check needs a file: router check FILE")
	case len(f.Words) > 1:
		return cli.Usagef("unexpected argument %q: check takes one file", f.Words[1])
	}
	table, err := routes.Load(f.Words[0])
	if err != nil {
		return cli.Usagef("%v", err)
	}
	if request != "" {
		return showRequest(stdout, table, request, headers, partitions)
	}
	return showRoutes(stdout, table)
}

func showRoutes(w io.Writer, table *routes.Table) error {
	out := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(out, "NAME\tMATCH\tKEY\tMODE")
	for _, r := range table.Routes() {
		fmt.Fprintf(out, "%s\t%s\t%s\t%s\n", r.Name, matchText(r), keyText(r), r.Policy.Mode)
	}
	if err := out.Flush(); err != nil {
		return err
	}
	return showRisks(w, table.Routes())
}

// showRisks writes where exclusion rests on how an app reads requests.
func showRisks(w io.Writer, list []*routes.Route) error {
	var keyed, read, without []string
	for _, r := range list {
		if len(r.Keys) > 0 {
			keyed = append(keyed, r.Name)
		}
		for _, s := range slices.Concat(r.Keys, r.Tenant) {
			if s.ReadByApp() {
				read = append(read, fmt.Sprintf("%s (%s)", r.Name, s))
			}
		}
		if r.WithoutKey.Any {
			without = append(without, fmt.Sprintf("%s (line %d)", r.Name, r.Line))
		}
	}
	var err error
	if len(read) > 0 {
		_, err = fmt.Fprintf(w, "\nThe app must find the same key as the router, or take it from Keyway-Key: %s.\n", strings.Join(read, ", "))
	}
	if len(without) > 0 && len(keyed) > 0 && err == nil {
		_, err = fmt.Fprintf(w, "\nwarning: requests without a key run at the same app, with no key held: %s. If the app takes one of them for a request "+
			"of a route with keys, two run at once (keys: %s). Give what needs no key an upstream of its own, or an app that refuses requests without Keyway-Key.\n",
			strings.Join(without, ", "), strings.Join(keyed, ", "))
	}
	return err
}

func matchText(r *routes.Route) string {
	var parts []string
	if len(r.Match.Methods) > 0 {
		parts = append(parts, strings.Join(r.Match.Methods, ","))
	}
	if where := strings.Join(r.Match.Hosts, ",") + r.Match.Path; where != "" {
		parts = append(parts, where)
	}
	return cmp.Or(strings.Join(parts, " "), "all")
}

func keyText(r *routes.Route) string {
	text := strings.Join(strings.Fields(r.Keys.String()), " or ")
	switch {
	case r.Prefix != "":
		text = fmt.Sprintf("%q + %s", r.Prefix, text)
	case len(r.Tenant) > 0:
		text = r.Tenant.String() + " / " + text
	}
	switch {
	case len(r.Keys) == 0:
		return "none: " + r.WithoutKey.String()
	case r.WithoutKey.Any || r.WithoutKey.Upstream != "":
		return text + "; without: " + r.WithoutKey.String()
	}
	return text
}

// showRequest writes what becomes of a request.
func showRequest(w io.Writer, table *routes.Table, request string, headers []string, partitions int) error {
	method, target, _ := strings.Cut(request, " ")
	r, err := keysource.Describe(method, strings.TrimSpace(target), "", headers)
	if err != nil {
		return cli.Usagef("--request: want a method and a URL, such as 'POST http://shop.example/orders/42': %v", err)
	}
	req := keysource.Of(r)
	route, preflight, err := table.Find(r.Method, req)
	if err != nil {
		return fmt.Errorf("%s: %w", request, err)
	}
	key, err := route.Key(req, new([]byte))
	if errors.Is(err, gateway.ErrNoKey) {
		without := route.WithoutKey
		without.Any = without.Any || preflight && without.Preflights()
		_, err = fmt.Fprintf(w, "route %s (line %d), no key: %s\n", route.Name, route.Line, without)
		return err
	}
	if err != nil {
		return fmt.Errorf("route %s (line %d): %w", route.Name, route.Line, err)
	}
	p := ring.Config{Partitions: partitions}.Partition(key)
	_, err = fmt.Fprintf(w, "route %s (line %d), key %q, partition %d of %d\n", route.Name, route.Line, key, p, partitions)
	return err
}
