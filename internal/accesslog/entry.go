package accesslog

import (
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"strconv"
	"time"

	"github.com/cespare/xxhash/v2"
)

// Entry is the content of a request's line. docs/observability.md explains the fields of a line.
type Entry struct {
	Time   time.Time // when the request came
	ID     string    // of its trace; "" for one that the line makes up
	Route  string
	Method string
	Path   string // without the query
	Status int    // 499 if the client did not wait

	BytesIn, BytesOut int64 // of bodies

	Key       string // "" for none; then there is no partition
	Partition int

	Owner string        // the worker that was asked last; "" for none
	Way   string        // what has carried the request
	Tries int           // attempts at workers
	Hold  time.Duration // before the last of these
	Timed bool          // Wait and Run are known
	Wait  time.Duration // for the key, at the worker
	Run   time.Duration // with the key held
	Total time.Duration // to the end of the answer

	Error string // kind of the router's own answer; "" for none
}

func (e *Entry) append(b []byte, keys bool) []byte {
	b = append(b, `{"time":"`...)
	b = e.Time.UTC().AppendFormat(b, "2006-01-02T15:04:05.000000Z")
	b = append(b, `","id":`...)
	b = appendString(b, orRandom(e.ID))
	b = appendNamed(b, "route", e.Route)
	b = appendNamed(b, "method", e.Method)
	b = appendNamed(b, "path", e.Path)
	b = appendNumber(b, "status", int64(e.Status))
	b = appendNumber(b, "bytes_in", e.BytesIn)
	b = appendNumber(b, "bytes_out", e.BytesOut)
	if e.Key != "" {
		b = append(b, `,"key_hash":"`...)
		b = hex.AppendEncode(b, binary.BigEndian.AppendUint64(nil, xxhash.Sum64String(e.Key)))
		b = append(b, '"')
		if keys {
			b = appendNamed(b, "key", e.Key)
		}
		b = appendNumber(b, "partition", int64(e.Partition))
	}
	b = appendNamed(b, "owner", e.Owner)
	b = appendNamed(b, "way", e.Way)
	b = appendNumber(b, "tries", int64(e.Tries))
	b = appendMilliseconds(b, "hold_ms", e.Hold)
	if e.Timed {
		b = appendMilliseconds(b, "wait_ms", e.Wait)
		b = appendMilliseconds(b, "run_ms", e.Run)
	}
	b = appendMilliseconds(b, "total_ms", e.Total)
	b = appendNamed(b, "error", e.Error)
	return append(b, "}\n"...)
}

func orRandom(id string) string {
	if id != "" {
		return id
	}
	var b [16]byte
	rand.Read(b[:])
	return hex.EncodeToString(b[:])
}

func appendName(b []byte, name string) []byte {
	b = append(b, `,"`...)
	b = append(b, name...)
	return append(b, `":`...)
}

// appendNamed appends a field with a text, unless that is empty.
func appendNamed(b []byte, name, value string) []byte {
	if value == "" {
		return b
	}
	return appendString(appendName(b, name), value)
}

func appendNumber(b []byte, name string, n int64) []byte {
	return strconv.AppendInt(appendName(b, name), n, 10)
}

func appendMilliseconds(b []byte, name string, d time.Duration) []byte {
	return strconv.AppendFloat(appendName(b, name), float64(d.Microseconds())/1000, 'f', -1, 64)
}

// appendString appends s as JSON. Bytes that are not UTF-8 become U+FFFD.
func appendString(b []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '"' || c == '\\' {
			quoted, _ := json.Marshal(s) // of a string it does not fail
			return append(b, quoted...)
		}
	}
	b = append(b, '"')
	b = append(b, s...)
	return append(b, '"')
}
