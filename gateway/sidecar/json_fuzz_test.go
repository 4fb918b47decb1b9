package sidecar

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/keyway-go/keyway/gateway/worker"
)

// FuzzDecodeAnswers takes what an app answers to a batch apart, and writes it to
// clients.
func FuzzDecodeAnswers(f *testing.F) {
	for _, seed := range []string{
		`[]`, `[{}]`, `[{"status":200,"header":{"X-A":"b","X-C":["d","e"]},"body":{"f":1}},{"status":204}]`,
		`[{"status":99}]`, `[{"status":1e3}]`, `[{"header":{"a\r\nb":"c"}}]`, `[{"header":{"a":"b\nc"}}]`, `[null,3,"x",[]]`,
		`[{"header":null,"body":null,"status":null}]`, `[{}] x`, `{}`, ``, `[{"header":{"Content-Length":"9","Trailer":"X"}}]`,
	} {
		f.Add([]byte(seed), 2)
		f.Add([]byte(seed), 1)
	}
	f.Fuzz(func(t *testing.T, data []byte, n int) {
		answers, errs, err := decodeAnswers(data, n)
		if err != nil {
			return
		}
		if len(answers) != n || len(errs) != n {
			t.Fatalf("%d answers and %d errors for %d requests", len(answers), len(errs), n)
		}
		for i, a := range answers {
			if errs[i] != nil {
				continue
			}
			rec := httptest.NewRecorder()
			a.write(rec)
			if rec.Code != a.status || rec.Code < 200 || rec.Code > 599 {
				t.Errorf("status %d of %d", rec.Code, a.status)
			}
			if body := rec.Body.Bytes(); len(body) > 0 && !json.Valid(body) {
				t.Errorf("body %q", body)
			}
			var head bytes.Buffer
			if err := rec.Header().Write(&head); err != nil || rec.Header().Get("Content-Length") != "" {
				t.Errorf("header %v: %v", rec.Header(), err)
			}
		}
	})
}

// FuzzCheckJSON lets only that pass of which an array can be made.
func FuzzCheckJSON(f *testing.F) {
	for _, seed := range []string{`{"a":[1,-2.5e+3,"\"\\ü",true,null]}`, `"\ud83d\ude00"`, `"\ud83d"`, `"\ude00"`, `"\ud83dx"`, `"\ud83d\\ude00"`, `[[[`, `"`, `"\`, `"\u12`, "\"\xff\"", `1 2`, ``} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		if checkJSON(body) != nil {
			return
		}
		items := []*worker.Item[jsonRequest, jsonAnswer]{
			{In: newJSONRequest(httptest.NewRequest(http.MethodPost, "/a?b=%22", nil), body)},
			{In: newJSONRequest(httptest.NewRequest(http.MethodPost, "/", nil), []byte(`1`))},
		}
		var got []struct {
			Target string
			Header map[string]string
			Body   json.RawMessage
		}
		if err := json.Unmarshal(appendBatch(nil, items), &got); err != nil {
			t.Fatal(err)
		}
		if len(got) != 2 || string(got[0].Body) != string(bytes.TrimSpace(body)) || got[0].Target != "/a?b=%22" || got[0].Header["host"] != "example.com" || string(got[1].Body) != "1" {
			t.Errorf("%+v", got)
		}
	})
}

// TestCheckJSON: text that parsers of some languages give up at does not get into a
// batch, where it would fail the others.
func TestCheckJSON(t *testing.T) {
	for body, want := range map[string]bool{
		`{"a":["\ud83d\ude00",1.5e300,"]]]"]}`: true,
		`[1e308,-1e308,1e-999,0.0]`:            true,
		`{"buy":1e999}`:                        false,
		`-1e309`:                               false,
		`[1,2E+400,"x"]`:                       false,
		`"1e999"`:                              true,
		`"\ud83d"`:                             false,
		`"\ude00\ud83d"`:                       false,
		`"\ud83d\\ude00"`:                      false,
		"\"\xed\xa0\x80\"":                     false,
		"\ufeff1":                              false,
		`{"a":1}{"a":1}`:                       false,
		string(bytes.Repeat([]byte("9"), 65)):  false,
		string(bytes.Repeat([]byte("9"), 64)):  true,
		"[" + string(bytes.Repeat([]byte("9,"), 1000)) + "9]":                         true,
		string(bytes.Repeat([]byte("["), 65)) + string(bytes.Repeat([]byte("]"), 65)): false,
		string(bytes.Repeat([]byte("["), 64)) + string(bytes.Repeat([]byte("]"), 64)): true,
	} {
		if err := checkJSON([]byte(body)); (err == nil) != want {
			t.Errorf("%.40q: %v", body, err)
		}
	}
}
