package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/keyway-go/keyway/internal/cluster/proc"

	"github.com/keyway-go/keyway/internal/cmd/chaos/trial"
)

// nginxConfig is a plain round robin, which tries the next server if a connection fails.
const nginxConfig = `
daemon off;
pid %[1]s/nginx.pid;
error_log %[1]s/nginx.log;
events { worker_connections 4096; }
http {
	access_log off;
	client_body_temp_path %[1]s/nginx-body;
	proxy_temp_path %[1]s/nginx-proxy;
	fastcgi_temp_path %[1]s/nginx-fastcgi;
	uwsgi_temp_path %[1]s/nginx-uwsgi;
	scgi_temp_path %[1]s/nginx-scgi;
	upstream doors {
%[2]s	}
	server {
		listen %[3]s;
		proxy_read_timeout 90s;
		location / { proxy_pass http://doors; }
	}
}
`

// addDoors finds an address for the door of each worker of a plan.
func (s *stage) addDoors(acts []act) (err error) {
	s.doors = make(map[string]string)
	names := firstWorkers()
	for _, a := range acts {
		if a.Kind == join {
			names = append(names, a.Worker)
		}
	}
	for _, name := range names {
		if s.doors[name], err = proc.FreeAddr(); err != nil {
			return err
		}
	}
	return nil
}

// startNginx starts nginx before all doors and returns its address.
func (s *stage) startNginx(ctx context.Context) (addr string, err error) {
	program, err := exec.LookPath("nginx")
	if err != nil {
		return "", fmt.Errorf("%w. As root: scripts/deps nginx (Debian's package)", err)
	}
	if addr, err = proc.FreeAddr(); err != nil {
		return "", err
	}
	var servers strings.Builder
	for _, door := range s.doors {
		fmt.Fprintf(&servers, "\t\tserver %s max_fails=0;\n", door)
	}
	file := filepath.Join(s.dir, "nginx.conf")
	if err := os.WriteFile(file, fmt.Appendf(nil, nginxConfig, s.dir, &servers, addr), 0o644); err != nil {
		return "", err
	}
	p := &trial.Program{Name: "nginx", Lives: s.lives, Spec: func(string, int) (proc.Spec, error) {
		return proc.Spec{Program: program, Args: []string{"-p", s.dir, "-e", filepath.Join(s.dir, "nginx.log"), "-c", file}, Dial: addr}, nil
	}}
	return addr, p.Start(ctx)
}
