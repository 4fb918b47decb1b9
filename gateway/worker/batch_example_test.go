package worker_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/gateway/worker"
)

// Callers of one key that wait while others run are handled together: one read and
// one write for all of them.
func ExampleBatcher_Do() {
	ctx := context.Background()
	owner, members, err := startWorker(ctx, "127.0.0.1:8000")
	if err != nil {
		log.Fatal(err)
	}
	defer members.Close()
	defer owner.Close()

	errSoldOut := errors.New("sold out")
	stock := map[string]int{"sku-42": 5} // in a database, with the token
	sales, err := worker.NewBatcher(owner, worker.BatchConfig{}, func(x gateway.Execution, items []*worker.Item[int, int]) error {
		left := stock[x.Key()]
		for _, item := range items { // in the order in which they came
			if item.In > left {
				item.Err = errSoldOut
				continue
			}
			left -= item.In
			item.Out = left
		}
		stock[x.Key()] = left // an error of a database would be returned, to all
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
	left, err := sales.Do(ctx, "sku-42", 3)
	fmt.Println(left, err)
	_, err = sales.Do(ctx, "sku-42", 3)
	fmt.Println(err)
	// Output:
	// 2 <nil>
	// sold out
}

// Requests that are handled in batches, in one mux beside those that hold their key.
func ExampleBatchHandler() {
	ctx := context.Background()
	owner, members, err := startWorker(ctx, "127.0.0.1:8000")
	if err != nil {
		log.Fatal(err)
	}
	defer members.Close()
	defer owner.Close()

	sales, err := worker.NewBatcher(owner, worker.BatchConfig{}, func(x gateway.Execution, items []*worker.Item[int, string]) error {
		for _, item := range items {
			item.Out = fmt.Sprintf("%d of %s sold", item.In, x.Key())
		}
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle("POST /stock/{sku}", worker.BatchHandler(sales, func(r *http.Request) (pieces int, err error) {
		err = json.NewDecoder(r.Body).Decode(&pieces)
		return pieces, err
	}, func(w http.ResponseWriter, answer string, err error) {
		fmt.Fprintln(w, answer, err)
	}))
	mux.HandleFunc("GET /stock/{sku}", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintln(w, r.PathValue("sku"), "is held")
	})
	handler := owner.Handler(mux) // for owner.NewServer

	for _, r := range []*http.Request{
		httptest.NewRequest(http.MethodPost, "/stock/42", strings.NewReader("3")),
		httptest.NewRequest(http.MethodGet, "/stock/42", nil),
	} {
		r.Header.Set(gateway.HeaderKey, "42") // as a router does
		answer := httptest.NewRecorder()
		handler.ServeHTTP(answer, r)
		fmt.Print(answer.Body)
	}
	// Output:
	// 3 of 42 sold <nil>
	// 42 is held
}
