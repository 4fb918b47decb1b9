package grammar

// Trim returns v without the spaces and tabs around it (OWS in RFC 9110,
// section 5.6.3).
func Trim[S ~string | ~[]byte](v S) S {
	for len(v) > 0 && isSpace(v[0]) {
		v = v[1:]
	}
	for len(v) > 0 && isSpace(v[len(v)-1]) {
		v = v[:len(v)-1]
	}
	return v
}

func isSpace(c byte) bool { return c == ' ' || c == '\t' }

// IsValue reports whether v is the value of a field (RFC 9110, section 5.5):
// text that neither begins nor ends with a space or a tab.
func IsValue[S ~string | ~[]byte](v S) bool {
	return len(v) == 0 || !isSpace(v[0]) && !isSpace(v[len(v)-1]) && IsText(v)
}

// IsText reports whether v has no control character but tabs. A value is text,
// perhaps with spaces around it, and so is a reason phrase.
func IsText[S ~string | ~[]byte](v S) bool {
	const ones, highs = 0x0101010101010101, 0x8080808080808080
	i := 0
	for ; i+8 <= len(v); i += 8 {
		w := v[i : i+8]
		x := uint64(w[0]) | uint64(w[1])<<8 | uint64(w[2])<<16 | uint64(w[3])<<24 |
			uint64(w[4])<<32 | uint64(w[5])<<40 | uint64(w[6])<<48 | uint64(w[7])<<56
		y := x ^ ones*0x7f
		if ((x-ones*' ')&^x|(y-ones)&^y)&highs != 0 {
			break // perhaps a control character; look closer
		}
	}
	for ; i < len(v); i++ {
		if isControl(v[i]) {
			return false
		}
	}
	return true
}

func isControl(c byte) bool { return c < ' ' && c != '\t' || c == 0x7f }

// Blank puts a space in the place of each control character of v but tabs.
func Blank(v []byte) {
	for i, c := range v {
		if isControl(c) {
			v[i] = ' '
		}
	}
}

// CleanValue returns v as the value of a field: trimmed, with a space in the
// place of each control character but tabs (RFC 9110, section 5.5).
func CleanValue(v string) string {
	if !IsText(v) {
		b := []byte(v)
		Blank(b)
		v = string(b)
	}
	return Trim(v)
}
