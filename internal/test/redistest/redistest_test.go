package redistest

import (
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

func TestRestartsWithAndWithoutData(t *testing.T) {
	s := Start(t, "--appendonly", "yes")
	s.CLI("set", "k", "v")
	before := s.CLI("info", "server")
	s.Restart()
	if got := s.CLI("get", "k"); got != "v" {
		t.Errorf("after Restart k is %q, want v", got)
	}
	if runID(before) == runID(s.CLI("info", "server")) {
		t.Error("the run id survived a restart")
	}
	s.RestartEmpty()
	if got := s.CLI("get", "k"); got != "" {
		t.Errorf("after RestartEmpty k is %q, want nothing", got)
	}
	s.Stop()
	if _, err := net.DialTimeout("tcp", s.Addr(), time.Second); err == nil {
		t.Error("a stopped server accepts")
	}
	s.Again()
	s.CLI("ping")
}

func runID(info string) string {
	_, rest, _ := strings.Cut(info, "run_id:")
	id, _, _ := strings.Cut(rest, "\r\n")
	return id
}

func TestPauseStopsAnswers(t *testing.T) {
	s := Start(t)
	s.Pause()
	if s.answers() {
		t.Error("a paused server answers")
	}
	s.Resume()
	s.CLI("ping")
}

func TestTLS(t *testing.T) {
	s, ca := StartTLS(t)
	if !s.answers() || ca == "" {
		t.Error("the TLS server does not answer")
	}
}

// The mechanism of Require, seen from outside: a test binary that finds no
// redis-server fails under CI=true and skips elsewhere.
func TestRequire(t *testing.T) {
	if os.Getenv("REDISTEST_REQUIRE") == "yes" {
		Require(t)
		return
	}
	for ci, want := range map[string]string{"true": "--- FAIL", "": "--- SKIP"} {
		self := exec.Command(os.Args[0], "-test.run=^TestRequire$", "-test.v")
		self.Env = []string{"REDISTEST_REQUIRE=yes", "PATH=/nonexistent", "CI=" + ci}
		out, _ := self.CombinedOutput()
		if !strings.Contains(string(out), want) || !strings.Contains(string(out), "apt-get install redis-server") {
			t.Errorf("with CI=%q got\n%s\nwant %s and how to get redis-server", ci, out, want)
		}
	}
}
