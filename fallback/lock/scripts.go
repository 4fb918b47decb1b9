package lock

import (
	"crypto/sha1"
	"embed"
	"encoding/hex"
	"io/fs"
)

//go:embed lua/*.lua
var lockSources embed.FS

// lockScript is a script as EVALSHA and EVAL want it.
type lockScript struct {
	source string
	sha    string
}

// lockScripts are the scripts of the lock.
type lockScripts struct {
	take, acquire, read, fifo, give, release, renew, downgrade, adopt, force, state, order lockScript
}

func loadLockScripts() (*lockScripts, error) {
	library, err := fs.ReadFile(lockSources, "lua/lib.lua")
	if err != nil {
		return nil, err
	}
	s := new(lockScripts)
	for _, f := range []struct {
		name    string
		library []byte
		script  *lockScript
	}{
		{"take", nil, &s.take},
		{"acquire", library, &s.acquire},
		{"read", library, &s.read},
		{"fifo", library, &s.fifo},
		{"give", nil, &s.give},
		{"release", nil, &s.release},
		{"renew", library, &s.renew},
		{"downgrade", library, &s.downgrade},
		{"adopt", library, &s.adopt},
		{"force", nil, &s.force},
		{"state", library, &s.state},
		{"order", nil, &s.order},
	} {
		body, err := fs.ReadFile(lockSources, "lua/"+f.name+".lua")
		if err != nil {
			return nil, err
		}
		f.script.source = string(f.library) + string(body)
		sum := sha1.Sum([]byte(f.script.source)) // Redis names scripts so
		f.script.sha = hex.EncodeToString(sum[:])
	}
	return s, nil
}
