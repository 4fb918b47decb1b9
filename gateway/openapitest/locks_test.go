package openapitest

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/keyway-go/keyway/gateway/lockservice"
	"github.com/keyway-go/keyway/internal/test/kit"
	"github.com/keyway-go/keyway/internal/test/site"
)

// What the lock service takes and answers is as its description says.
func TestLocksAreAsDescribed(t *testing.T) {
	front, _ := site.InFrontOf(t, site.Serve(t, http.NotFoundHandler()).URL)
	site := httptest.NewServer(lockservice.New(front.Router, lockservice.Config{}))
	defer site.Close()
	secret := httptest.NewServer(lockservice.New(front.Router, lockservice.Config{Token: "s3cret"}))
	defer secret.Close()
	d := describedAt(t, site.URL+"/openapi.yaml")
	lease := ""
	for _, tt := range []struct {
		method, target string // in which LEASE stands for the last lease
		status         int
	}{
		{"GET", site.URL + "/openapi.yaml", 200},
		{"GET", site.URL + "/v1/locks/k", 200},
		{"POST", site.URL + "/v1/locks/k?ttl=5s&label=me", 200},
		{"GET", site.URL + "/v1/locks/k", 200},
		{"PUT", site.URL + "/v1/locks/k?ttl=6s&lease=LEASE", 200},
		{"POST", site.URL + "/v1/locks/k?wait=1ms", 423},
		{"POST", site.URL + "/v1/locks?key=a&key=k", 423},
		{"DELETE", site.URL + "/v1/locks/k?lease=LEASE", 204},
		{"DELETE", site.URL + "/v1/locks/k?lease=LEASE", 204}, // again
		{"PUT", site.URL + "/v1/locks/k?lease=LEASE", 410},
		{"POST", site.URL + "/v1/locks?key=a&key=b", 200},
		{"PUT", site.URL + "/v1/locks?key=a&key=b&lease=LEASE", 200},
		{"DELETE", site.URL + "/v1/locks?key=a&key=b&lease=LEASE", 204},
		{"DELETE", site.URL + "/v1/locks?key=a&key=b&lease=LEASE", 204}, // again
		{"PUT", site.URL + "/v1/locks?key=a&key=b&lease=LEASE", 410},
		{"POST", site.URL + "/v1/locks/r?mode=read", 200},
		{"GET", site.URL + "/v1/locks/r", 200},
		{"POST", site.URL + "/v1/locks/r?mode=write", 423},
		{"POST", site.URL + "/v1/locks/k?ttl=soon", 400},
		{"POST", site.URL + "/v1/locks", 400},
		{"POST", secret.URL + "/v1/locks/k", 401},
	} {
		req := kit.Must(http.NewRequestWithContext(t.Context(), tt.method, strings.ReplaceAll(tt.target, "LEASE", lease), nil))
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		body := kit.Must(io.ReadAll(res.Body))
		res.Body.Close()
		if res.StatusCode != tt.status {
			t.Errorf("%s %s: %d %s, want %d", tt.method, tt.target, res.StatusCode, body, tt.status)
		}
		if _, after, found := bytes.Cut(body, []byte(`"lease":"`)); found {
			lease = string(after[:32])
		}
		d.check(t, req, res, body)
	}
	d.checkAll(t)
}
