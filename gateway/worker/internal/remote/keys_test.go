package remote

import (
	"cmp"
	"slices"
)

// keys is a small model of keytable.Table: who has each key, and which calls wait for it in order of arrival.
type keys struct {
	closed bool
	minted int64
	list   []key
}

type key struct {
	name string
	holders
	heir holders // which has the key once the others have left it
}

type holders struct {
	token   int64
	sharers int  // that hold the key together with token; 0 if it is held alone
	listed  bool // by a Close
	remote  bool
}

func (k *keys) find(name string) *key {
	i := slices.IndexFunc(k.list, func(k key) bool { return k.name == name })
	if i < 0 {
		i = len(k.list)
		k.list = append(k.list, key{name: name})
	}
	return &k.list[i]
}

func (k *keys) admits(name string, shared bool) bool {
	e := k.find(name)
	return !k.closed && (e.token == 0 || shared && e.sharers > 0 && !e.listed)
}

// take grants a key that admits the caller.
func (k *keys) take(name string, shared bool) int64 {
	e := k.find(name)
	if e.token == 0 {
		k.minted++
		e.token, e.remote = k.minted, shared
	}
	if shared {
		e.sharers++
	}
	return e.token
}

func (k *keys) close() {
	k.closed = true
	for i := range k.list {
		e := &k.list[i]
		e.listed = e.token != 0
		e.heir.listed = e.heir.token != 0
	}
}

func (k *keys) open(epoch int64) {
	k.closed = false
	k.minted = max(k.minted, epoch<<20)
}

func (k *keys) holder(name string) int64 {
	e := k.find(name)
	return cmp.Or(e.heir.token, e.token)
}

// reserve is Table.Reserve.
func (k *keys) reserve(n int) (next int64, reserved int) {
	if k.closed {
		return 0, 0
	}
	k.minted += int64(n)
	return k.minted - int64(n) + 1, n
}

// install is what Table.Install says of one remote execution.
func (k *keys) install(name string, token int64, shared bool) bool {
	came := holders{token: token, listed: shared, remote: true}
	if shared {
		came.sharers = 1
	}
	switch e := k.find(name); {
	case e.token == 0:
		e.holders = came
	case shared && e.token == token && e.sharers > 0:
		e.sharers++
	case shared && e.heir.token == token && e.heir.sharers > 0:
		e.heir.sharers++
	case e.listed && (!e.remote || e.sharers > 0) && e.token < token && e.heir.token == 0:
		e.heir = came
	default:
		return false
	}
	return true
}

func (k *keys) share(name string, token int64) {
	for _, h := range []*holders{&k.find(name).holders, &k.find(name).heir} {
		if h.sharers > 0 && h.token == token {
			h.listed = false
		}
	}
}

// setRemote reports whether the key was listed before.
func (k *keys) setRemote(name string) (listed bool) {
	e := k.find(name)
	e.remote = e.remote || !e.listed
	return e.listed
}

// unlock reports whether somebody had the key with that token.
func (k *keys) unlock(name string, token int64) bool {
	e := k.find(name)
	h := &e.holders
	if e.token != token {
		h = &e.heir
	}
	switch {
	case token == 0 || h.token != token:
		return false
	case h.sharers > 1:
		h.sharers--
	default:
		if h == &e.holders {
			e.holders = e.heir
		}
		e.heir = holders{}
	}
	return true
}
