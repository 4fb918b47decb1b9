package grammar_test

import (
	"strings"
	"testing"

	"github.com/keyway-go/keyway/internal/wire/grammar"
)

func TestIsToken(t *testing.T) {
	for c := range 256 {
		alnum := 'a' <= c|0x20 && c|0x20 <= 'z' || '0' <= c && c <= '9'
		want := alnum || c < 128 && strings.ContainsRune("!#$%&'*+-.^_`|~", rune(c))
		if got := grammar.IsToken([]byte{'a', byte(c)}); got != want {
			t.Errorf("IsToken with byte %#02x: %v, want %v", c, got, want)
		}
	}
	if grammar.IsToken("") {
		t.Error("nothing is a token")
	}
}
