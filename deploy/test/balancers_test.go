package test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/keyway-go/keyway/internal/cluster"
	"github.com/keyway-go/keyway/internal/cluster/proc"
	"github.com/keyway-go/keyway/internal/test/kit"
	"github.com/keyway-go/keyway/internal/test/redistest"
)

// headerDoor names the address that a balancer has sent a request to.
const headerDoor = "X-Door"

// balancers are the load balancers of deploy/balancers.
var balancers = map[string]struct {
	hash *regexp.Regexp // comments that stand before its choice by the key
	args func(t *testing.T, dir, config string) []string
}{
	"nginx.conf": {regexp.MustCompile(`# (hash)`), func(t *testing.T, dir, config string) []string {
		var main strings.Builder
		fmt.Fprintf(&main, "daemon off;\npid %[1]s/pid;\nevents {}\nhttp {\naccess_log off;\nadd_header %[2]s $upstream_addr;\n", dir, headerDoor)
		for _, temp := range []string{"client_body", "proxy", "fastcgi", "uwsgi", "scgi"} {
			fmt.Fprintf(&main, "%s_temp_path %s/%[1]s;\n", temp, dir)
		}
		return []string{"-p", dir, "-e", filepath.Join(dir, "log"), "-c", write(t, dir, main.String()+config+"}\n")}
	}},
	"haproxy.cfg": {regexp.MustCompile(`# (balance|hash)`), func(t *testing.T, dir, config string) []string {
		return []string{"-db", "-f", write(t, dir, config+"\thttp-response set-header "+headerDoor+" %s\n")}
	}},
}

func write(t *testing.T, dir, text string) string {
	t.Helper()
	file := filepath.Join(dir, "config")
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return file
}

// Load balancers take the files of deploy/balancers. Whether they choose doors in turns or by the key, two of three
// requests come to another door than their owner's, and each key runs at one worker, one request after the other.
func TestBalancers(t *testing.T) {
	programs := cluster.In(buildPrograms(t))
	redis, gossip := redistest.Start(t), kit.FreeAddr(t)
	doors := make(map[string]string) // workers by their public addresses, and by the names that HAProxy has for them
	var places []string              // what the files have, and where that is here
	for i, own := range []string{gossip, "127.0.0.1:0", "127.0.0.1:0"} {
		name, door := fmt.Sprint("worker-", i+1), kit.FreeAddr(t)
		p, err := cluster.Start(t.Context(), name, programs.Worker, t.Output(), "--name", name, "--public", door, "--admin", "127.0.0.1:0",
			"--redis", redis.URL(), "--gossip", own, "--join", gossip, "--new-cluster", "--session-ttl", "2s")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(p.KillGroup)
		doors[door], doors[name] = name, name
		_, port, _ := net.SplitHostPort(p.Admin)
		places = append(places, name+":8080 check port 9090", door+" check port "+port, name+":8080", door)
	}
	counts := make(map[string]int) // of each key
	for file, b := range balancers {
		program := strings.TrimSuffix(file, filepath.Ext(file))
		for _, policy := range []string{"in turns", "by the key"} {
			t.Run(program+" "+policy, func(t *testing.T) {
				config, addr := read(t, "../balancers/"+file), kit.FreeAddr(t)
				config = strings.NewReplacer(append(places, "listen 80", "listen "+addr, "bind :80", "bind "+addr)...).Replace(config)
				if policy == "by the key" {
					config = strings.Replace(b.hash.ReplaceAllString(config, "$1"), "balance roundrobin", "", 1)
				}
				p, err := proc.Start(t.Context(), proc.Spec{Name: program, Program: program, Args: b.args(t, t.TempDir(), config), Out: t.Output(), Dial: addr})
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(p.KillGroup)
				hops, requests := 0, 1000
				for range requests {
					key := fmt.Sprint("order-", rand.IntN(500))
					res, body := kit.Fetch(t, "http://"+addr+"/", "X-Key", key)
					var a struct {
						Worker string
						Count  int
					}
					door := doors[res.Header.Get(headerDoor)]
					if counts[key]++; res.StatusCode != http.StatusOK || json.Unmarshal([]byte(body), &a) != nil || a.Count != counts[key] || door == "" {
						t.Fatalf("%s at %q: %s %s, want count %d", key, door, res.Status, body, counts[key])
					}
					if a.Worker != door {
						hops++
					}
				}
				t.Logf("%d of %d requests took a hop more", hops, requests)
				if hops < requests/2 || hops > requests*5/6 {
					t.Errorf("%d of %d requests took a hop more, want two of three", hops, requests)
				}
			})
		}
	}
}
