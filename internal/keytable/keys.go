package keytable

// keys is the set of entries of a table. One entry lives in the set itself, so that a table with a
// single busy key touches no map. The others are in a map that is made when needed.
type keys struct {
	slot entry
	used bool // slot is in the set
	big  bool // more has outgrown what is worth keeping
	more map[string]*entry
	free spares[entry]
}

// keepMap is the largest size of a map that is kept when it is empty: one group of a Go map.
const keepMap = 8

func (k *keys) find(key string) *entry {
	if k.used && k.slot.key == key {
		return &k.slot
	}
	if len(k.more) == 0 {
		return nil
	}
	return k.more[key]
}

// add adds an entry for a key that has none.
func (k *keys) add(key string) *entry {
	if !k.used {
		k.used = true
		k.slot.key = key
		return &k.slot
	}
	return k.addMore(key)
}

func (k *keys) addMore(key string) *entry {
	e := k.free.get()
	if e == nil {
		e = new(entry)
	}
	e.key = key
	if k.more == nil {
		k.more = make(map[string]*entry)
	}
	k.more[key] = e
	k.big = k.big || len(k.more) > keepMap
	return e
}

// need returns the entry of key, which it adds if there is none.
func (k *keys) need(key string) *entry {
	if e := k.find(key); e != nil {
		return e
	}
	return k.add(key)
}

// drop removes an idle entry.
func (k *keys) drop(e *entry) {
	e.slowWait = false
	if e != &k.slot || e.lines != nil && e.lines.big {
		e.lines = nil
	}
	if e == &k.slot {
		k.used = false
		e.key = ""
		return
	}
	delete(k.more, e.key)
	e.key = ""
	k.free.put(e)
	if k.big && len(k.more) == 0 {
		k.more, k.big = nil, false
	}
}

// all yields every entry; the one it has just yielded may be dropped.
func (k *keys) all(yield func(*entry) bool) {
	if k.used && !yield(&k.slot) {
		return
	}
	for _, e := range k.more {
		if !yield(e) {
			return
		}
	}
}

func (k *keys) len() int {
	if k.used {
		return len(k.more) + 1
	}
	return len(k.more)
}

// spares are a few values for reuse.
type spares[T any] struct {
	list *[maxSpares]*T // nil until there is one
	len  int
}

const maxSpares = 4

// get returns a spare, or nil if there is none.
func (s *spares[T]) get() *T {
	if s.len == 0 {
		return nil
	}
	s.len--
	x := s.list[s.len]
	s.list[s.len] = nil
	return x
}

func (s *spares[T]) put(x *T) {
	if s.len == maxSpares {
		return
	}
	if s.list == nil {
		s.list = new([maxSpares]*T)
	}
	s.list[s.len] = x
	s.len++
}
