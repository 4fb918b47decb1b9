package keyway

import "errors"

// ErrConfig means that a field of [Config] is missing, out of range, or says
// another thing than a second one. The text names the field.
var ErrConfig = errors.New("keyway: bad configuration")
