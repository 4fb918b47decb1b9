// Package grammar holds the parts of HTTP's grammar (RFC 9110) that all of its
// versions and the link share.
package grammar

// A bit for each byte that RFC 9110, section 5.6.2, allows in a token.
const (
	tokenLow  = 0x03ff6cfa00000000 // ! # $ % & ' * + - . 0-9
	tokenHigh = 0x57ffffffc7fffffe // A-Z ^ _ ` a-z | ~
)

// IsToken reports whether s is a token, such as a method or a field's name.
func IsToken[S ~string | ~[]byte](s S) bool {
	for i := range len(s) {
		if !IsTokenByte(s[i]) {
			return false
		}
	}
	return len(s) > 0
}

// IsTokenByte reports whether c may stand in a token.
func IsTokenByte(c byte) bool {
	switch {
	case c < 64:
		return tokenLow>>c&1 != 0
	case c < 128:
		return tokenHigh>>(c-64)&1 != 0
	}
	return false
}
