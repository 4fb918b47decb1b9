package tracing

import (
	"fmt"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
)

// Config is what the environment says about spans beyond what OpenTelemetry's SDK reads by itself.
// Make one with [Environment]. It does not change.
type Config struct {
	program string
	console bool // spans go to standard output, and to a collector otherwise
	queue   int  // spans that wait at most
}

// defaultQueue is the SDK's default of OTEL_BSP_MAX_QUEUE_SIZE.
const defaultQueue = 2048

// Environment reads the OpenTelemetry variables (OTEL_…) that decide whether the program makes
// spans, and where they go. The result is nil if there are none: OTEL_SDK_DISABLED or
// OTEL_TRACES_EXPORTER says so, or neither an exporter nor an endpoint is set. An error names a
// variable whose value would keep all spans from arriving. [Config.Start] logs what the SDK finds wrong with others.
func Environment(program string) (*Config, error) {
	exporter := os.Getenv("OTEL_TRACES_EXPORTER")
	switch {
	case strings.EqualFold(os.Getenv("OTEL_SDK_DISABLED"), "true"), exporter == "none":
		return nil, nil
	case !slices.Contains([]string{"", "otlp", "console"}, exporter):
		return nil, bad("OTEL_TRACES_EXPORTER", "want otlp, console or none")
	}
	c := &Config{program: program, console: exporter == "console", queue: defaultQueue}
	if text := os.Getenv("OTEL_BSP_MAX_QUEUE_SIZE"); text != "" {
		var err error
		if c.queue, err = strconv.Atoi(text); err != nil || c.queue < 1 {
			return nil, bad("OTEL_BSP_MAX_QUEUE_SIZE", "want a number above 0")
		}
	}
	endpoint, name := otlp("ENDPOINT")
	if at, err := url.Parse(endpoint); endpoint != "" && (err != nil || at.Scheme != "http" && at.Scheme != "https" || at.Host == "") {
		return nil, bad(name, "want http://host:port or https://host:port")
	}
	if protocol, name := otlp("PROTOCOL"); protocol != "" && protocol != "http/protobuf" {
		return nil, bad(name, "want http/protobuf")
	}
	headers, name := otlp("HEADERS")
	for pair := range strings.SplitSeq(headers, ",") { // the SDK would log a bad one, with its secret
		if _, err := url.PathUnescape(pair); err != nil || headers != "" && !strings.Contains(pair, "=") {
			return nil, bad(name, "want NAME=VALUE,NAME=VALUE with percent-encoded values")
		}
	}
	if endpoint == "" && exporter == "" {
		return nil, nil
	}
	return c, nil
}

// bad does not show the value, which may be a secret.
func bad(name, want string) error { return fmt.Errorf("%s has a bad value: %s", name, want) }

// otlp returns a variable about OTLP and its name. One about traces takes precedence.
func otlp(what string) (value, name string) {
	if name = "OTEL_EXPORTER_OTLP_TRACES_" + what; os.Getenv(name) == "" {
		name = "OTEL_EXPORTER_OTLP_" + what
	}
	return os.Getenv(name), name
}
