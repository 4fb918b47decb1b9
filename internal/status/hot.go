package status

// HotKey is a key that a worker has been asked for often lately.
type HotKey struct {
	Key       string  `json:"key"`
	PerSecond float64 `json:"per_second"` // at most, as far as what was sampled is like the rest
	Error     float64 `json:"error"`      // by how much PerSecond may be too high
	Waiting   int     `json:"waiting"`    // requests and calls that wait for it now
}
