package main

import (
	"bytes"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// What memory has no room for goes to a file in --body-dir, and a body over --max-body
// nowhere.
func TestBodies(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "bodies")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	r := start(t, "--replay-bytes", "1", "--max-body", "100000", "--body-files", "1000000", "--body-dir", dir)
	join(t, r, http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		all, err := io.ReadAll(req.Body)
		if err != nil {
			t.Error(err)
		}
		w.Write(all)
	}))
	post := func(size int) (status int, body []byte) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), "POST", r.requests, bytes.NewReader(bytes.Repeat([]byte("x"), size)))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("X-Key", "k")
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		if body, err = io.ReadAll(res.Body); err != nil {
			t.Error(err)
		}
		return res.StatusCode, body
	}
	for _, size := range []int{100, 16 << 10, 100_000} {
		if status, got := post(size); status != 200 || string(got) != strings.Repeat("x", size) {
			t.Errorf("%d bytes: %d, %d bytes", size, status, len(got))
		}
	}
	if status, _ := post(100_001); status != 413 {
		t.Errorf("over --max-body: %d", status)
	}
	if err := os.Remove(dir); err != nil {
		t.Fatal(err)
	}
	if status, _ := post(16 << 10); status != 503 {
		t.Errorf("without --body-dir: %d", status)
	}
}
