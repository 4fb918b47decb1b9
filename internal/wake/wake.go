// Package wake has goroutines wake each other by channels with room for one.
package wake

// Up wakes the receiver of ch: now, or when it receives next. Any number of calls before
// that are one. A nil channel wakes nobody.
func Up(ch chan<- struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}
