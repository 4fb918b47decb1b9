package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"
)

const project = "keyway-deploy-test"

// stack is what compose.yaml starts.
type stack struct {
	dir    string // of compose.yaml
	doors  bool   // with compose.door.yaml
	out    io.Writer
	env    []string
	router string // host:port of router-1

	prometheus string // host:port
}

func (s *stack) play(ctx context.Context, undo *undoing) error {
	if err := s.choosePorts(); err != nil {
		return err
	}
	undo.add(func(ctx context.Context) error {
		_, err := s.compose(ctx, "down", "--volumes", "--remove-orphans", "--timeout", "5")
		return err
	})
	services, err := s.services(ctx)
	if err != nil {
		return err
	}
	if _, err := s.compose(ctx, append([]string{"up", "--detach", "--no-build"}, services...)...); err != nil {
		return err
	}
	if err := s.curl(ctx); err != nil {
		return errors.Join(err, s.logs(ctx))
	}
	if err := s.playUnderLoad(ctx, services); err != nil {
		return errors.Join(err, s.logs(ctx))
	}
	return nil
}

// choosePorts chooses free ports of this machine for those that are published.
func (s *stack) choosePorts() error {
	s.env = append(os.Environ(), "COMPOSE_PROJECT_NAME="+project, "KEYWAY_TAG="+tag)
	for _, name := range []string{"KEYWAY_PORT", "KEYWAY_ADMIN_PORT", "KEYWAY_LOCKS_PORT", "KEYWAY_PORT_2", "PROMETHEUS_PORT", "GRAFANA_PORT"} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return err
		}
		defer l.Close()
		_, port, _ := net.SplitHostPort(l.Addr().String())
		s.env = append(s.env, name+"="+port)
		switch name {
		case "KEYWAY_PORT":
			s.router = l.Addr().String()
		case "PROMETHEUS_PORT":
			s.prometheus = l.Addr().String()
		}
	}
	return nil
}

func (s *stack) compose(ctx context.Context, args ...string) (string, error) {
	if s.doors {
		args = append([]string{"-f", "compose.yaml", "-f", "compose.door.yaml"}, args...)
	}
	cmd := command(ctx, "docker-compose", args...)
	if _, err := exec.LookPath("docker-compose"); err != nil {
		cmd = command(ctx, "docker", append([]string{"compose"}, args...)...)
	}
	cmd.Dir, cmd.Env = s.dir, s.env
	return run(cmd)
}

// services returns all services but Grafana, which has no stand-in, and with doors the
// routers.
func (s *stack) services(ctx context.Context) ([]string, error) {
	text, err := s.compose(ctx, "config", "--services")
	if err != nil {
		return nil, err
	}
	all := strings.Fields(text)
	slices.Sort(all)
	return slices.DeleteFunc(all, func(name string) bool {
		return name == "grafana" || s.doors && strings.HasPrefix(name, "router-")
	}), nil
}

// curl sends what the README says until it is answered as there.
func (s *stack) curl(ctx context.Context) error {
	began := time.Now()
	err := await(ctx, time.Minute, func(ctx context.Context) error {
		status, text, err := get(ctx, "http://"+s.router+"/", http.Header{"X-Key": {"order-42"}})
		if err != nil {
			return err
		}
		var said struct {
			Key          string
			Count, Token int64
		}
		if status != http.StatusOK || json.Unmarshal(text, &said) != nil || said.Key != "order-42" || said.Count != 1 || said.Token == 0 {
			return fmt.Errorf("status %d: %s", status, text)
		}
		fmt.Fprintf(s.out, "  curl -H 'X-Key: order-42' http://127.0.0.1:…/ → %s  (after %.1f s)\n", strings.TrimSpace(string(text)), time.Since(began).Seconds())
		return nil
	})
	if err != nil {
		return fmt.Errorf("the README's curl: %w", err)
	}
	return nil
}

// get returns the status and the body of an answer.
func get(ctx context.Context, url string, header http.Header) (status int, body []byte, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, nil, err
	}
	r.Header = header
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, nil, err
	}
	defer answer.Body.Close()
	body, err = io.ReadAll(answer.Body)
	return answer.StatusCode, body, err
}

// playUnderLoad restarts each service, asks what the dashboards ask and kills a
// worker.
func (s *stack) playUnderLoad(ctx context.Context, services []string) error {
	targets := []string{"http://router-1:8080", "http://router-2:8080"}
	if s.doors {
		targets = []string{"http://nginx"}
	}
	l, err := startLoad(ctx, project+"-client", project+"_default", loadRate, targets...)
	if err != nil {
		return err
	}
	failed, err := s.restartEach(ctx, l, services)
	if err != nil {
		return err
	}
	if !s.doors {
		if err := s.askPanels(ctx); err != nil {
			return err
		}
	}
	between := l.result()
	if err := s.kill(ctx, l); err != nil {
		return err
	}
	total, err := l.stop(ctx)
	if err != nil {
		return err
	}
	last := l.result()
	if failed += between.failed() + last.failed(); failed > 0 {
		return fmt.Errorf("requests failed though nothing was killed: %s", &total)
	}
	return nil
}

// restartEach restarts each service but nginx, which clients are connected to, one after the other, and returns how many
// requests have failed.
func (s *stack) restartEach(ctx context.Context, l *load, services []string) (failed int, err error) {
	for _, service := range services {
		if service == "nginx" {
			continue
		}
		began := time.Now()
		if _, err := s.compose(ctx, "restart", service); err != nil {
			return 0, err
		}
		took := time.Since(began)
		if err := l.awaitAnswers(ctx, settleAnswers); err != nil {
			return 0, err
		}
		part := l.result()
		failed += part.failed()
		fmt.Fprintf(s.out, "  restart %-10s (%4.1f s): %s\n", service, took.Seconds(), &part)
	}
	return failed, nil
}

// kill kills a worker, of which what had started fails, and nothing else does.
func (s *stack) kill(ctx context.Context, l *load) error {
	if _, err := s.compose(ctx, "kill", "worker-2"); err != nil {
		return err
	}
	if _, err := s.compose(ctx, "start", "worker-2"); err != nil {
		return err
	}
	if err := l.awaitAnswers(ctx, settleAnswers); err != nil {
		return err
	}
	part := l.result()
	fmt.Fprintf(s.out, "  kill    worker-2: %s\n", &part)
	for why, n := range part.Failed {
		if !strings.Contains(why, " 502 ") || n > loadClients {
			return fmt.Errorf("a killed worker may only fail what had started there: %s", &part)
		}
	}
	return nil
}

// logs returns the latest lines of all services as an error.
func (s *stack) logs(ctx context.Context) error {
	text, err := s.compose(ctx, "logs", "--no-color", "--tail", "40")
	return errors.Join(err, errors.New(text))
}
