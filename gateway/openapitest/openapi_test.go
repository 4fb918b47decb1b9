package openapitest

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/getkin/kin-openapi/routers/gorillamux"

	"github.com/keyway-go/keyway/internal/records"
	"github.com/keyway-go/keyway/internal/suspects"
	"github.com/keyway-go/keyway/internal/test/kit"
	"github.com/keyway-go/keyway/internal/test/site"
)

// Requests and real answers are as the description says, at a router and at a worker.
func TestAnswersAreAsDescribed(t *testing.T) {
	s := site.NewOperated(t, "")
	w1, w2 := s.Start(), s.Start()
	kit.Eventually(t, "both serve", func() bool {
		return w1.Serving() > 0 && w2.Serving() > 0 && w1.Serving()+w2.Serving() == site.Partitions
	})
	book := suspects.Book{Cases: []suspects.Case{{Key: "deadly", Since: time.Now().Unix(), Workers: [2]string{"gone", "lost"}}}}
	kit.Must(s.Store.Replace(t.Context(), records.Suspects, "", book.String()))
	kit.Eventually(t, "the worker knows of it", func() bool { return len(w1.Status().Quarantined) == 1 && len(w2.Status().Quarantined) == 1 })
	key := s.KeyOf(w1)
	for range 3 {
		s.Block(key, 1)
	}
	kit.Eventually(t, "two wait", func() bool { return w1.Queued(key) == 2 })
	d := describedAt(t, s.Admin+"/openapi.yaml")
	for _, tt := range []struct {
		method, url string
		status      int
	}{
		{"GET", s.Admin + "/", 200}, {"GET", s.Admin + "/events", 200}, {"GET", s.Admin + "/healthz", 200}, {"GET", s.Admin + "/readyz", 200}, {"GET", s.Admin + "/members", 200},
		{"GET", s.Admin + "/ring", 200}, {"GET", s.Admin + "/explain?key=" + key, 200},
		{"GET", s.Admin + "/explain?url=http://h/orders/1&method=POST&header=A:%20b&client=192.0.2.1", 200}, {"GET", s.Admin + "/explain", 400}, {"GET", s.Admin + "/explain?key=deadly", 200},
		{"GET", s.Admin + "/workers", 200}, {"GET", s.Admin + "/moves", 200}, {"GET", s.Admin + "/hot", 200}, {"GET", s.Admin + "/loads", 200}, {"GET", s.Admin + "/routes", 200},
		{"GET", s.Admin + "/locks", 200}, {"GET", s.Admin + "/locks?after=k", 200}, {"POST", s.Admin + "/unlock?key=free", 404}, {"POST", s.Admin + "/unlock", 400},
		{"POST", s.Admin + "/release?key=deadly", 200}, {"POST", s.Admin + "/release?key=free", 404}, {"POST", s.Admin + "/release", 400},
		{"GET", s.Admin + "/metrics", 200}, {"GET", s.Admin + "/debug/pprof/heap", 200}, {"GET", s.Admin + "/debug/pprof/goroutine?debug=1", 200},
		{"GET", s.Admin + "/debug/pprof/nope", 404}, {"GET", s.Admin + "/openapi.yaml", 200},
		{"POST", s.Admin + "/place?partition=1&worker=w2", 200}, {"POST", s.Admin + "/place?partition=1", 400}, {"POST", s.Admin + "/place?partition=1&worker=w9", 409}, {"GET", s.Admin + "/ring", 200},
		{"POST", s.Admin + "/unplace?partition=1", 200}, {"POST", s.Admin + "/unplace", 400},
		{"POST", s.Admin + "/drain?worker=w2", 200}, {"POST", s.Admin + "/undrain?worker=w2", 200}, {"POST", s.Admin + "/drain?worker=w9", 404}, {"POST", s.Admin + "/drain", 400},
		{"GET", w1.Admin + "/workers", 200}, {"GET", w1.Admin + "/explain?key=" + key, 200}, {"POST", w2.Admin + "/undrain", 200},
	} {
		req, err := http.NewRequestWithContext(t.Context(), tt.method, tt.url, nil)
		if err != nil {
			t.Fatal(err)
		}
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		body, err := readAll(res)
		if err != nil || res.StatusCode != tt.status {
			t.Errorf("%s %s: %d %s %v, want %d", tt.method, tt.url, res.StatusCode, body, err, tt.status)
			continue
		}
		if strings.HasSuffix(tt.url, "/events") {
			var event any
			if err := json.Unmarshal(body, &event); err != nil {
				t.Fatal(err)
			}
			if err := d.doc.Components.Schemas["Live"].Value.VisitJSON(event); err != nil {
				t.Errorf("an event: %v", err)
			}
		}
		d.check(t, req, res, body)
	}
	d.checkAll(t)
}

// description is an OpenAPI description, and what of it was tried.
type description struct {
	doc   *openapi3.T
	find  routers.Router
	tried map[string]bool // methods and paths
}

// describedAt reads a description.
func describedAt(t *testing.T, url string) *description {
	t.Helper()
	_, text := kit.Fetch(t, url)
	d := &description{tried: make(map[string]bool)}
	var err error
	if d.doc, err = openapi3.NewLoader().LoadFromData([]byte(text)); err != nil {
		t.Fatal(err)
	}
	if err := d.doc.Validate(t.Context()); err != nil {
		t.Fatal(err)
	}
	d.doc.Servers = nil
	if d.find, err = gorillamux.NewRouter(d.doc); err != nil {
		t.Fatal(err)
	}
	for _, kind := range []string{"application/yaml", "text/event-stream", "text/html"} {
		openapi3filter.RegisterBodyDecoder(kind, openapi3filter.FileBodyDecoder)
	}
	return d
}

// check sees that a request, unless it was to be refused, and its answer are as described.
func (d *description) check(t *testing.T, req *http.Request, res *http.Response, body []byte) {
	t.Helper()
	route, params, err := d.find.FindRoute(req)
	if err == nil {
		d.tried[route.Method+" "+route.Path] = true
		err = asDescribed(t.Context(), req, route, params, res, body)
	}
	if err != nil {
		t.Errorf("%s %s: %v", req.Method, req.URL, err)
	}
}

// checkAll sees that everything described was tried.
func (d *description) checkAll(t *testing.T) {
	t.Helper()
	for path, item := range d.doc.Paths.Map() {
		for method := range item.Operations() {
			if !d.tried[method+" "+path] {
				t.Errorf("%s %s was not tried", method, path)
			}
		}
	}
}

// readAll reads an answer to its end, and of events the data of the first one.
func readAll(res *http.Response) ([]byte, error) {
	defer res.Body.Close()
	if res.Header.Get("Content-Type") != "text/event-stream" {
		return io.ReadAll(res.Body)
	}
	lines := bufio.NewReader(res.Body)
	for {
		line, err := lines.ReadBytes('\n')
		if data, ok := bytes.CutPrefix(line, []byte("data: ")); ok || err != nil {
			return data, err
		}
	}
}

func asDescribed(ctx context.Context, req *http.Request, route *routers.Route, params map[string]string, res *http.Response, body []byte) error {
	input := &openapi3filter.RequestValidationInput{
		Request: req, PathParams: params, Route: route,
		Options: &openapi3filter.Options{AuthenticationFunc: openapi3filter.NoopAuthenticationFunc, IncludeResponseStatus: true},
	}
	if res.StatusCode != http.StatusBadRequest {
		if err := openapi3filter.ValidateRequest(ctx, input); err != nil {
			return err
		}
	}
	if kind, _, found := strings.Cut(res.Header.Get("Content-Type"), ";"); found {
		res.Header.Set("Content-Type", kind) // with its parameters it is none that a description names
	}
	return openapi3filter.ValidateResponse(ctx, &openapi3filter.ResponseValidationInput{
		RequestValidationInput: input, Status: res.StatusCode, Header: res.Header, Body: io.NopCloser(bytes.NewReader(body)), Options: input.Options,
	})
}
