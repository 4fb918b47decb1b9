// Package wake has goroutines wake each other by channels with room for one.
package wake

// Up wakes the receiver of ch: now, or when it receives next. Several calls before that count as
// one. A nil channel is ignored.
func Up(ch chan<- struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}
