package spans

import (
	"cmp"
	"context"
	"encoding/binary"
	"encoding/hex"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/cespare/xxhash/v2"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
)

// scope is the name under which Keyway makes spans.
const scope = "github.com/keyway-go/keyway"

// The names of spans that are not those of a request.
const (
	Hold      = "hold"       // a request waits at a router, or a client, for an owner
	QueueWait = "queue wait" // a request waits at a worker for its key
	Execution = "execution"  // a request, or a lock, has its key
	Lock      = "lock"       // a key is asked for, until it is held
)

// Attributes of Keyway's own.
const (
	Partition = attribute.Key("keyway.partition")
	Worker    = attribute.Key("keyway.worker")
	Token     = attribute.Key("keyway.token")
	Way       = attribute.Key("keyway.way")
	Batch     = attribute.Key("keyway.batch.size")
	keyHash   = attribute.Key("keyway.key_hash")
	wholeKey  = attribute.Key("keyway.key")
)

// Attributes of the semantic conventions for HTTP.
const (
	Method       = attribute.Key("http.request.method")
	methodAsSent = attribute.Key("http.request.method_original")
	Status       = attribute.Key("http.response.status_code")
	Route        = attribute.Key("http.route")
	Resend       = attribute.Key("http.request.resend_count")
	Path         = attribute.Key("url.path")
	Scheme       = attribute.Key("url.scheme")
	Protocol     = attribute.Key("network.protocol.version")
	address      = attribute.Key("server.address")
	port         = attribute.Key("server.port")
	errorType    = attribute.Key("error.type")
)

// Maker makes spans. A nil one makes none.
type Maker struct {
	tracer trace.Tracer
	keys   bool // spans have the keys themselves
}

// New returns what makes spans by p, nil if that is nil. With keys set, spans have keys
// themselves, and not only their hashes.
func New(p trace.TracerProvider, keys bool) *Maker {
	if p == nil {
		return nil
	}
	return &Maker{p.Tracer(scope), keys}
}

// startOptions are those of spans of each kind, made once.
var startOptions = [...][]trace.SpanStartOption{
	trace.SpanKindInternal: {trace.WithSpanKind(trace.SpanKindInternal)},
	trace.SpanKindServer:   {trace.WithSpanKind(trace.SpanKindServer)},
	trace.SpanKindClient:   {trace.WithSpanKind(trace.SpanKindClient)},
}

// Start begins a span within that of ctx. Most spans are not recorded, so attrs is called only if
// this one is. The strings that it returns must not be in memory that is reused.
func (m *Maker) Start(ctx context.Context, name string, kind trace.SpanKind, attrs func() []attribute.KeyValue) (context.Context, trace.Span) {
	ctx, span := m.tracer.Start(ctx, name, startOptions[kind]...)
	if span.IsRecording() {
		span.SetAttributes(attrs()...)
	}
	return ctx, span
}

// Add adds a span within that of ctx which is over, with attrs as for Start.
func (m *Maker) Add(ctx context.Context, name string, began, ended time.Time, failed string, attrs func() []attribute.KeyValue) {
	_, span := m.tracer.Start(ctx, name, trace.WithSpanKind(trace.SpanKindInternal), trace.WithTimestamp(began))
	if span.IsRecording() {
		span.SetAttributes(attrs()...)
		Fail(span, failed)
	}
	span.End(trace.WithTimestamp(ended))
}

// ServerAttributes returns what spans say of a server at host:port.
func ServerAttributes(addr string) []attribute.KeyValue {
	host, service, err := net.SplitHostPort(addr)
	if err != nil {
		return []attribute.KeyValue{address.String(addr)}
	}
	list := []attribute.KeyValue{address.String(host)}
	if n, err := strconv.Atoi(service); err == nil {
		list = append(list, port.Int(n))
	}
	return list
}

// Fail says that what a span is about has failed: kind is a word for how; "" for that it has not.
func Fail(span trace.Span, kind string) {
	if kind != "" {
		span.SetStatus(codes.Error, kind)
		span.SetAttributes(errorType.String(kind))
	}
}

// FailStatus says how an answer's status of 500 or above has failed, if nothing else does.
func FailStatus(span trace.Span, status int) {
	if status >= http.StatusInternalServerError {
		Fail(span, strconv.Itoa(status))
	}
}

// KeyAttributes returns what spans say of a key, nothing for "".
func (m *Maker) KeyAttributes(key string) []attribute.KeyValue {
	if key == "" {
		return nil
	}
	hash := hex.EncodeToString(binary.BigEndian.AppendUint64(nil, xxhash.Sum64String(key)))
	list := append(make([]attribute.KeyValue, 0, 6), keyHash.String(hash))
	if m.keys {
		list = append(list, wholeKey.String(strings.Clone(key)))
	}
	return list
}

// MethodName returns a request's method for names of spans. Methods unknown to HTTP become "HTTP",
// since clients could invent any number of them.
func MethodName(method string) string {
	return cmp.Or(knownMethod(method), "HTTP")
}

// knownMethod returns "" for a method that is none of RFC 9110 and RFC 5789. Its result is not in
// memory that is reused.
func knownMethod(method string) string {
	for _, known := range [...]string{"GET", "POST", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS", "CONNECT", "TRACE"} {
		if method == known {
			return known
		}
	}
	return ""
}

// maxMethod and maxPath are how many bytes of these spans have at most.
const (
	maxMethod = 64
	maxPath   = 1024
)

// part returns a copy of at most the first most bytes of text.
func part(text string, most int) string { return strings.Clone(text[:min(len(text), most)]) }

// RequestAttributes returns what spans say of a request with that method and path. It keeps
// nothing of them.
func RequestAttributes(method, path string) []attribute.KeyValue {
	list := make([]attribute.KeyValue, 0, 8)
	if known := knownMethod(method); known != "" {
		list = append(list, Method.String(known))
	} else {
		list = append(list, Method.String("_OTHER"), methodAsSent.String(part(method, maxMethod)))
	}
	return append(list, Path.String(part(path, maxPath)))
}
