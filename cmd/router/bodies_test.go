package main

import (
	"bytes"
	"io"
	"net/http"
	"testing"
	"time"
)

// A body for which --replay-bytes has no room is not waited for before its
// request goes to a worker.
func TestReplayBytes(t *testing.T) {
	r := start(t, "--replay-bytes", "1")
	begun := make(chan struct{})
	join(t, r, http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		close(begun)
		all, err := io.ReadAll(req.Body)
		if err != nil {
			t.Error(err)
		}
		w.Write(all)
	}))
	body := bytes.Repeat([]byte("x"), 16<<10)
	read, write := io.Pipe()
	go func() {
		write.Write(body[:8<<10])
		select {
		case <-begun:
			write.Write(body[8<<10:])
			write.Close()
		case <-time.After(10 * time.Second):
			write.CloseWithError(io.ErrUnexpectedEOF)
		}
	}()
	req, err := http.NewRequestWithContext(t.Context(), "POST", r.requests, read)
	if err != nil {
		t.Fatal(err)
	}
	req.ContentLength = int64(len(body))
	req.Header.Set("X-Key", "k")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if got, err := io.ReadAll(res.Body); res.StatusCode != 200 || !bytes.Equal(got, body) {
		t.Errorf("%d, %d bytes, %v", res.StatusCode, len(got), err)
	}
}
