package accesslog

// Dropped returns how many lines were dropped.
func (l *Log) Dropped() int64 { return l.dropped.Load() }
