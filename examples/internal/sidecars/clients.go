package sidecars

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"sync"
)

// Answer is what a client got. Body is JSON.
type Answer struct {
	Status int
	Body   []byte
}

// Post sends one POST with a JSON body to each of the URLs, all at the same
// time, and returns the answers in the same order.
func Post(ctx context.Context, urls []string, body any) ([]Answer, error) {
	content, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: len(urls)}}
	defer client.CloseIdleConnections()
	answers, errs := make([]Answer, len(urls)), make([]error, len(urls))
	var wait sync.WaitGroup
	for i, url := range urls {
		wait.Go(func() { answers[i], errs[i] = post(ctx, client, url, content) })
	}
	wait.Wait()
	for i, err := range errs {
		if err != nil {
			return nil, fmt.Errorf("request %d: %w", i, err)
		}
	}
	return answers, nil
}

func post(ctx context.Context, client *http.Client, url string, content []byte) (Answer, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(content))
	if err != nil {
		return Answer{}, err
	}
	r.Header.Set("Content-Type", "application/json")
	res, err := client.Do(r)
	if err != nil {
		return Answer{}, err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	return Answer{res.StatusCode, body}, err
}

// Together returns how many requests an app had in the largest of its batches, as
// the app says in its answers; 1 if it got each by itself.
func Together(answers []Answer) int {
	most := 1
	for _, a := range answers {
		var answer struct{ Together int }
		if json.Unmarshal(a.Body, &answer) == nil {
			most = max(most, answer.Together)
		}
	}
	return most
}
