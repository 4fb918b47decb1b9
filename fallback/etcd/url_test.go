package etcd

import (
	"errors"
	"slices"
	"strings"
	"testing"
)

func TestParseURL(t *testing.T) {
	c, err := parseURL("etcds://user:p%40ss@a,b:1,[::1]:2/?skip_verify=true&server_name=x")
	if err != nil || !slices.Equal(c.Endpoints, []string{"https://a:2379", "https://b:1", "https://[::1]:2"}) ||
		c.Username != "user" || c.Password != "p@ss" || !c.TLS.InsecureSkipVerify || c.TLS.ServerName != "x" {
		t.Errorf("%+v, %v", c, err)
	}
	if c, err = parseURL("etcd://a:1"); err != nil || c.TLS != nil || c.Username != "" {
		t.Errorf("%+v, %v", c, err)
	}
}

func TestBadURLs(t *testing.T) {
	for url, want := range map[string]string{
		"":                                   "etcd://",
		"redis://a":                          "etcd://",
		"etcd://":                            "host:port",
		"etcd://a,,b":                        "host:port",
		"etcd://a/path":                      "host:port",
		"etcd://a:1:2":                       "host:port",
		"etcd://u:secret%zz@a":               "do not parse",
		"etcd://a?ca=x":                      "ca is unknown",
		"etcds://u:secret@a?ca=/no/such.pem": "ca",
		"etcds://a?cert=/no/such.pem":        "cert, key",
		"etcds://a?%zz":                      "query",
	} {
		if _, err := parseURL(url); !errors.Is(err, errURL) || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v, want errURL with %q", url, err, want)
		}
	}
}
