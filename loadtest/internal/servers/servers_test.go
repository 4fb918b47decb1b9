//go:build linux

package servers

import (
	"maps"
	"testing"
)

func TestParseCalls(t *testing.T) {
	const info = "# Commandstats\r\ncmdstat_set:calls=7,usec=1\r\ncmdstat_info:calls=100,usec=2\r\ncmdstat_client|setinfo:calls=9,usec=3\r\n"
	if got, want := parseCalls(info), (map[string]int64{"set": 7, "info": 100, "client|setinfo": 9}); !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}
