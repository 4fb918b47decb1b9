// Package query reads the parameters of a store's URL.
package query

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"os"
	"slices"
	"strconv"
	"time"
)

// Query takes known parameters out of a URL's query; the rest is unknown. It keeps the first error.
type Query struct {
	values url.Values
	err    error
}

// Parse takes a URL's query apart.
func Parse(raw string) (*Query, error) {
	values, err := url.ParseQuery(raw)
	if err != nil {
		return nil, errors.New("the query does not parse")
	}
	return &Query{values: values}, nil
}

func (q *Query) fail(name, problem string) {
	if q.err == nil {
		q.err = fmt.Errorf("parameter %s %s", name, problem)
	}
}

// All returns all values of a parameter.
func (q *Query) All(name string) []string {
	values := q.values[name]
	delete(q.values, name)
	return values
}

// Text returns the one value of a parameter, or "".
func (q *Query) Text(name string) string {
	values := q.All(name)
	if len(values) > 1 {
		q.fail(name, "is given more than once")
	}
	if len(values) == 0 {
		return ""
	}
	return values[0]
}

// Number returns a parameter that is a number of at least 0, or 0.
func (q *Query) Number(name string) int {
	s := q.Text(name)
	if s == "" {
		return 0
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < 0 {
		q.fail(name, fmt.Sprintf("is %q, not a number", s))
	}
	return n
}

// Duration returns a parameter that is a duration above 0, or def.
func (q *Query) Duration(name string, def time.Duration) time.Duration {
	s := q.Text(name)
	if s == "" {
		return def
	}
	d, err := time.ParseDuration(s)
	if err != nil || d <= 0 {
		q.fail(name, fmt.Sprintf("is %q, not a duration above 0 such as 500ms", s))
		return def
	}
	return d
}

// TLS returns what the parameters ca, cert, key, server_name and skip_verify say.
func (q *Query) TLS() *tls.Config {
	c := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: q.Text("server_name")}
	switch s := q.Text("skip_verify"); s {
	case "", "false":
	case "true":
		c.InsecureSkipVerify = true
	default:
		q.fail("skip_verify", fmt.Sprintf("is %q, not true or false", s))
	}
	if ca := q.Text("ca"); ca != "" {
		pem, err := os.ReadFile(ca)
		if err != nil {
			q.fail("ca", err.Error())
		}
		c.RootCAs = x509.NewCertPool()
		if err == nil && !c.RootCAs.AppendCertsFromPEM(pem) {
			q.fail("ca", fmt.Sprintf("%s holds no PEM certificate", ca))
		}
	}
	certFile, keyFile := q.Text("cert"), q.Text("key")
	if certFile != "" || keyFile != "" {
		c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { // anew: it may have been renewed
			cert, err := tls.LoadX509KeyPair(certFile, keyFile)
			return &cert, err
		}
		if _, err := c.GetClientCertificate(nil); err != nil {
			q.fail("cert, key", err.Error())
		}
	}
	return c
}

// Finish returns the first error. A parameter that was not taken is one.
func (q *Query) Finish() error {
	for _, name := range slices.Sorted(maps.Keys(q.values)) {
		q.fail(name, "is unknown here")
	}
	return q.err
}
