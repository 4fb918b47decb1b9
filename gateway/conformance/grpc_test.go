package conformance

import (
	"os/exec"
	"path/filepath"
	"testing"
)

// TestGRPC runs gRPC's interoperability client against its server through router
// and sidecar: unary calls and streams in all directions, their metadata, status,
// deadlines and cancellation.
func TestGRPC(t *testing.T) {
	t.Parallel()
	_, port := split(t, freeAddr(t))
	app := exec.Command(filepath.Join(bin, "grpc-server"), "--port", port, "--use_tls=false")
	if err := app.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = app.Process.Kill()
		_ = app.Wait()
	})
	cert, key, ca := certificate(t)
	plain, secure := newCluster(t, "h2c://127.0.0.1:"+port), newCluster(t, "h2c://127.0.0.1:"+port, "--tls-cert", cert, "--tls-key", key)
	for _, way := range []struct {
		name   string
		router string
		args   []string
	}{
		{"h2c", plain.router, []string{"--use_tls=false"}},
		{"TLS", secure.router, []string{"--use_tls=true", "--use_test_ca=true", "--ca_file", ca}},
	} {
		host, port := split(t, way.router)
		for _, test := range []string{
			"empty_unary", "large_unary", "client_streaming", "server_streaming", "ping_pong", "empty_stream",
			"timeout_on_sleeping_server", "cancel_after_begin", "cancel_after_first_response", "status_code_and_message",
			"special_status_message", "custom_metadata", "unimplemented_method", "unimplemented_service",
		} {
			t.Run(way.name+"/"+test, func(t *testing.T) {
				out, err := program(t, settled, filepath.Join(bin, "grpc-client"),
					append(way.args, "--server_host", host, "--server_port", port, "--test_case", test)...)
				if err != nil {
					t.Errorf("%v\n%s", err, out)
				}
			})
		}
	}
}
