package lock

import (
	"embed"

	"github.com/redis/go-redis/v9"
)

//go:embed lua/*.lua
var lockSources embed.FS

// lockScript is a script as EVALSHA and EVAL want it.
type lockScript struct {
	source string
	sha    string
}

// scripts are the scripts of the lock. Those that grant one begin with a library.
var scripts = struct {
	take, acquire, read, fifo, give, release, renew, downgrade, adopt, state lockScript
}{
	take: load("take"), give: load("give"), release: load("release"),
	acquire: load("lib", "acquire"), read: load("lib", "read"), fifo: load("lib", "fifo"), renew: load("lib", "renew"),
	downgrade: load("lib", "downgrade"), adopt: load("lib", "adopt"), state: load("lib", "state"),
}

func load(files ...string) (s lockScript) {
	for _, file := range files {
		text, err := lockSources.ReadFile("lua/" + file + ".lua")
		if err != nil {
			panic(err) // it is embedded
		}
		s.source += string(text)
	}
	s.sha = redis.NewScript(s.source).Hash()
	return s
}
