package tracing

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
)

// Config is what the environment says about spans. Make one with [Environment]. It does not change.
type Config struct {
	console  bool     // spans go to standard output
	endpoint *url.URL // spans go there; nil for nowhere
	headers  map[string]string
	timeout  time.Duration // of one request
	gzip     bool
	tls      *tls.Config

	resource *resource.Resource
	sampler  sdk.Sampler
	queue    int           // spans that wait at most
	batch    int           // spans of one request
	delay    time.Duration // until what is there is sent
	patience time.Duration // with the requests for one batch
}

// Prefixes of the variables about OTLP. A variable about traces takes precedence over the general
// one.
const otlpPrefix, tracesPrefix = "OTEL_EXPORTER_OTLP_", "OTEL_EXPORTER_OTLP_TRACES_"

// environment reads variables. It continues after an error; err is the first.
type environment struct {
	get func(name string) string
	err error
}

// Environment reads the OpenTelemetry variables (OTEL_…) for the program's spans. get returns the
// value of a variable, "" for none. The result is nil if there are no spans: OTEL_SDK_DISABLED or
// OTEL_TRACES_EXPORTER says so, or neither an exporter nor an endpoint is set. An error names the
// bad variable.
func Environment(program string, get func(name string) string) (*Config, error) {
	e := &environment{get: get}
	disabled := e.choice("OTEL_SDK_DISABLED", "false", "true", "false") == "true"
	exporter := e.choice("OTEL_TRACES_EXPORTER", "", "otlp", "console", "none")
	if e.err != nil || disabled || exporter == "none" || exporter == "" && e.otlp("ENDPOINT") == "" {
		return nil, e.err
	}
	c := &Config{
		console: exporter == "console",
		sampler: e.sampler(), resource: e.resource(program),
		queue:    e.number("OTEL_BSP_MAX_QUEUE_SIZE", 2048),
		batch:    e.number("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", 512),
		delay:    e.duration("OTEL_BSP_SCHEDULE_DELAY", 5*time.Second),
		patience: e.duration("OTEL_BSP_EXPORT_TIMEOUT", 30*time.Second),
	}
	c.batch = min(c.batch, c.queue)
	if !c.console {
		e.collector(c)
	}
	if e.err != nil {
		return nil, e.err
	}
	return c, nil
}

// fail records that the value of a variable is wrong. It does not show the value, which may be a
// secret.
func (e *environment) fail(name, format string, args ...any) {
	if e.err == nil {
		e.err = fmt.Errorf("%s has a bad value: %w", name, fmt.Errorf(format, args...))
	}
}

// choice returns one of the values, in lower case.
func (e *environment) choice(name, otherwise string, values ...string) string {
	v := strings.ToLower(strings.TrimSpace(e.get(name)))
	if v == "" {
		return otherwise
	}
	if !slices.Contains(values, v) {
		e.fail(name, "%q, want %s", v, strings.Join(values, ", "))
	}
	return v
}

// maxNumber bounds the numbers of variables.
const maxNumber = 1 << 24

func (e *environment) number(name string, otherwise int) int {
	v := strings.TrimSpace(e.get(name))
	if v == "" {
		return otherwise
	}
	n, err := strconv.Atoi(v)
	if err != nil || n < 1 || n > maxNumber {
		e.fail(name, "%q, want a number from 1 to %d", v, maxNumber)
	}
	return n
}

// duration returns a number of milliseconds.
func (e *environment) duration(name string, otherwise time.Duration) time.Duration {
	return time.Duration(e.number(name, int(otherwise/time.Millisecond))) * time.Millisecond
}

// otlpName returns the name of the variable that says something about OTLP.
func (e *environment) otlpName(what string) string {
	if e.get(tracesPrefix+what) != "" {
		return tracesPrefix + what
	}
	return otlpPrefix + what
}

func (e *environment) otlp(what string) string { return strings.TrimSpace(e.get(e.otlpName(what))) }

// sampler returns what decides which traces have spans.
func (e *environment) sampler() sdk.Sampler {
	const name = "OTEL_TRACES_SAMPLER"
	kind := e.choice(name, "parentbased_always_on", "always_on", "always_off", "traceidratio",
		"parentbased_always_on", "parentbased_always_off", "parentbased_traceidratio")
	kind, parent := strings.CutPrefix(kind, "parentbased_")
	s := sdk.AlwaysSample()
	switch kind {
	case "always_off":
		s = sdk.NeverSample()
	case "traceidratio":
		s = sdk.TraceIDRatioBased(e.ratio(name + "_ARG"))
	}
	if parent {
		return sdk.ParentBased(s)
	}
	return s
}

func (e *environment) ratio(name string) float64 {
	v := strings.TrimSpace(e.get(name))
	if v == "" {
		return 1
	}
	r, err := strconv.ParseFloat(v, 64)
	if err != nil || !(r >= 0 && r <= 1) {
		e.fail(name, "%q, want a number from 0 to 1", v)
	}
	return r
}

// pairs returns the pairs NAME=VALUE of a list with commas, whose values are percent-encoded.
func (e *environment) pairs(name string) (list [][2]string) {
	for item := range strings.SplitSeq(e.get(name), ",") {
		if strings.TrimSpace(item) == "" {
			continue
		}
		key, value, found := strings.Cut(item, "=")
		key = strings.TrimSpace(key)
		value, err := url.PathUnescape(strings.TrimSpace(value))
		if !found || key == "" || err != nil {
			e.fail(name, "want NAME=VALUE,NAME=VALUE with percent-encoded values")
			return nil
		}
		list = append(list, [2]string{key, value})
	}
	return list
}

// resource returns what all spans of the program have in common.
func (e *environment) resource(program string) *resource.Resource {
	attrs := []attribute.KeyValue{
		attribute.String("service.name", program),
		attribute.String("telemetry.sdk.name", "opentelemetry"), attribute.String("telemetry.sdk.language", "go"),
	}
	for _, pair := range e.pairs("OTEL_RESOURCE_ATTRIBUTES") {
		attrs = append(attrs, attribute.String(pair[0], pair[1]))
	}
	if name := e.get("OTEL_SERVICE_NAME"); name != "" {
		attrs = append(attrs, attribute.String("service.name", name))
	}
	return resource.NewSchemaless(attrs...) // of one name the last counts
}

// collector reads where spans are sent, and how.
func (e *environment) collector(c *Config) {
	name := e.otlpName("ENDPOINT")
	text := e.otlp("ENDPOINT")
	if text == "" {
		text = "http://localhost:4318"
	}
	at, err := url.Parse(text)
	if err != nil || at.Scheme != "http" && at.Scheme != "https" || at.Host == "" {
		e.fail(name, "want http://host:port or https://host:port")
		return
	}
	if name == otlpPrefix+"ENDPOINT" {
		at = at.JoinPath("v1", "traces")
	}
	c.endpoint, c.timeout = at, e.duration(e.otlpName("TIMEOUT"), 10*time.Second)
	c.gzip = e.choice(e.otlpName("COMPRESSION"), "none", "gzip", "none") == "gzip"
	e.choice(e.otlpName("PROTOCOL"), "http/protobuf", "http/protobuf")
	c.headers = make(map[string]string)
	for _, pair := range e.pairs(e.otlpName("HEADERS")) {
		c.headers[pair[0]] = pair[1]
	}
	c.tls = e.tls()
}

// tls returns how the collector is known by its certificate, and which one is shown to it.
func (e *environment) tls() *tls.Config {
	config := new(tls.Config)
	if file := e.otlp("CERTIFICATE"); file != "" {
		text, err := os.ReadFile(file)
		config.RootCAs = x509.NewCertPool()
		if err == nil && !config.RootCAs.AppendCertsFromPEM(text) {
			err = errors.New("want a file with certificates in PEM")
		}
		if err != nil {
			e.fail(e.otlpName("CERTIFICATE"), "%w", err)
		}
	}
	cert, key := e.otlp("CLIENT_CERTIFICATE"), e.otlp("CLIENT_KEY")
	if cert == "" && key == "" {
		return config
	}
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		e.fail(e.otlpName("CLIENT_CERTIFICATE"), "with %s: %w", e.otlpName("CLIENT_KEY"), err)
	}
	config.Certificates = []tls.Certificate{pair}
	return config
}
