package conformance

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"unicode/utf16"
)

// request is one of the differential test. Over HTTP/1.1 its parts are sent as they are.
type request struct {
	http2          bool
	host           string // a if it is empty
	method, target string
	fields         []string // name: value
	body           string
}

func (r request) String() string {
	version := "HTTP/1.1"
	if r.http2 {
		version = "HTTP/2"
	}
	return fmt.Sprintf("%s %+q %+q %+q %+q", version, r.method, r.target, r.fields, r.body)
}

func (r request) clone() request {
	r.fields = slices.Clone(r.fields)
	return r
}

const jsonType = "Content-Type: application/json"

// plainRequests are what generated requests begin as.
var plainRequests = []request{
	{method: "GET", target: "/orders/42"},
	{method: "POST", target: "/orders/42/items"},
	{method: "GET", target: "/nums/42"},
	{method: "GET", target: "/room?room=A"},
	{method: "GET", target: "/cart", fields: []string{"Cookie: cart=A"}},
	{method: "GET", target: "/owner", fields: []string{"X-Owner: A"}},
	{method: "POST", target: "/account", fields: []string{jsonType}, body: `{"account":{"id":"A"}}`},
	{method: "POST", target: "/account", fields: []string{jsonType}, body: `{"account":{"id":1}}`},
	{method: "POST", target: "/pay/7"},
	{method: "GET", target: "/"},
}

// knownRequests are those that some stack has read in another way than the router once.
var knownRequests = []request{
	{method: "GET", target: "/room?room=A#1"},
	{method: "GET", target: "/room?room=A#1", http2: true},
	{method: "GET", target: "/orders/42%2Fitems"},
	{method: "GET", target: "/orders/42;a=b"},
	{method: "GET", target: "/nums/042"},
	{method: "GET", target: "/cart", fields: []string{`Cookie: cart="\101"`}},
	{method: "POST", target: "/account", fields: []string{"Content-Type: application/json; charset=utf-7"}, body: `{"account":{"id":"A","x":"+ACI-,+ACI-id+ACI-:+ACI-B+ACI-,+ACI-y+ACI-:+ACI-"}}`},
	{method: "post", target: "/pay/9"},
	{method: "GET", target: "/Orders/42"},
	{method: "GET", target: "/%2forders/42"},
	{method: "GET", target: "/x/..;/orders/42"},
	{method: "GET", target: "//orders/42"},
	{method: "GET", target: "/%2e/orders/42"},
}

// What mutations put into requests.
var (
	methods  = []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "PROPFIND", "get", "post", "Post", "pOST", "POST\t", "QUERY"}
	frequent = []string{"/", "//", "/./", "/../", "/%2e/", "/..;/", ";", ";a=b", "%2f", "%5c", "\\", "#", "%23", "?", "&room=B", "0", ".", "%20", "+", "%00"}
	pieces   = []string{
		"/", "//", "/.", "/..", "/./", "/../", "/x/../", "/%2e/", "/%2e%2e/", "/.%2e/", "/..;/", "/;/", "/;a=b/", ";", ";a=b", ";jsessionid=1", "%3b", "%3B",
		"%2f", "%2F", "%252f", "%5c", "%5C", "\\", "/\\", "%c0%af", "%e0%80%af", "%2e", ".", "..", ",", ".json", "%ef%bc%8f", "\uff0f", "\u2044", "\u2215",
		"#", "#1", "%23", "?", "%3f", "?room=B", "&", "&room=B", "&room=A", "room=B&", ";room=B", "&room[]=B", "&room%5B%5D=B", "&room[0]=B", "&room[a]=B", "&room.=B", "&Room=B", "ROOM=B&", "&%72oom=B",
		"&room%00=B", "&room%20=B", "&+room=B", "& room=B", "=", "&room", "&=", "&_method=PUT", "%26", "%3d", "+", "%20", "%2b", "%2B", " ", "\t", "%09", "%0a", "%0d%0a", "%00", "\x00", "\x7f", "%7f", "\x80", "%80", "%ff", "\xff",
		"%", "%%", "%4", "%zz", "%u0041", "%25", "%2541", "%41", "%34", "%36", "0", "00", "-", "+4", "-0", "_", "0x", "e0", ".0", "1e0", "%D9%A4%D9%A2", "\u0664\u0662", "%EF%BC%94", "\u0131", "\u212a", "\u017f", "e\u0301", "\u00e9", "%C3%A9", "%E9", "\u00df", "\u200b", "%E2%80%8B", "\u202e", "\ufeff", "%EF%BB%BF",
		"*", ":", "@", "!", "$", "'", "(", ")", "\"", "<", ">", "[", "]", "{", "}", "|", "^", "`", "~",
		"http://a/", "http://b", "//b/", "orders", "/orders/9", "nums", "room", "cart", "account", "pay", "/42", "42", "A", "B", "index.html", "/items", "/items/1",
	}
	headers = []string{
		"Cookie: cart=B", "Cookie: cart=A; cart=B", "Cookie: cart=\"A\"", `Cookie: cart="\101"`, `Cookie: cart="A`, `Cookie: cart=A"`, `Cookie: cart="A\"B"`, `Cookie: cart="A;b"`, "Cookie: cart=A,cart=B", "Cookie: CART=B; cart=A", "Cookie: cart =B", "Cookie: cart= B",
		"Cookie: cart=%41", "Cookie: cart=a+b", "Cookie: cart=a%2Bb", "Cookie: cart=a%20b", "Cookie: cart=\xe9", "Cookie: cart=\u00e9", "Cookie: cart=%C3%A9", "Cookie: cart", "Cookie: cart==", "Cookie: x=1;cart=B", "Cookie: x=\"1; cart=B\"; cart=A", "Cookie: $Version=1; cart=B; $Path=/",
		"Cookie: c%61rt=B", "Cookie: cart[]=B", "Cookie: __proto__=1; cart=B", "Cookie: cart=A\tB", "Cookie: cart=A B", "Cookie: cart=A\\B", "Cookie: cart=j:{\"a\":1}", "Cookie: cart=s:A", "Cookie: cart=A,B", "Cookie: =cart=B; cart=A", "Cookie: ;cart=B", "Cookie: x=[;cart=B", "Cookie: x\xe9=1; cart=B", "Cookie: @=1; cart=A", "cookie: cart=B", "Cookie2: cart=B",
		jsonType, "Content-Type: application/json; charset=utf-8", "Content-Type: application/json;charset=UTF-7", "Content-Type: application/json; charset=utf-16", "Content-Type: application/json; charset=utf-16le", "Content-Type: application/json; charset=utf-32", "Content-Type: application/json; charset=iso-8859-1", "Content-Type: application/json; charset=\"utf-8\"", "Content-Type: application/json; charset=utf-8; charset=utf-7", "Content-Type: application/json; Charset=UTF-7", "Content-Type: application/json; charset*=utf-8''utf-7",
		"Content-Type: application/json;", "Content-Type: APPLICATION/JSON", "Content-Type: application/json, text/plain", "Content-Type: application/merge-patch+json", "Content-Type: text/json", "Content-Type: text/plain", "Content-Type: application/x-www-form-urlencoded", "Content-Type: multipart/form-data; boundary=x", "Content-Encoding: identity", "Content-Encoding: gzip",
		"X-HTTP-Method-Override: POST", "X-HTTP-Method-Override: PUT", "X-HTTP-Method: POST", "X-Method-Override: POST", "X-Original-URL: /orders/9", "X-Rewrite-URL: /orders/9", "X-Original-Method: POST", "X-Forwarded-Prefix: /orders", "X-Script-Name: /orders", "Script-Name: /orders", "Path-Info: /orders/9", "X-Forwarded-Path: /orders/9",
		"X-Owner: B", "X-Owner: ", "x-owner: B", "X_Owner: B", "X.Owner: B", "X-Owner:\tB ", "X-Owner: A, B", "X-Owner: A,B", "X-Owner: \"A\"", "X-Owner: a%20b", "X-Owner: a b", "X-Owner: a+b", "X-Owner: %41", "X-Owner: %2541", "X-Owner: \u00e9", "X-Owner: %C3%A9", "X-Owner: \xe9", "X-Owner: =?utf-8?q?A?=",
		"Keyway-Key: order:9", "Keyway_Key: order:9", "Keyway.Key: order:9", "Accept-Language: de", "X-Requested-With: XMLHttpRequest", "Origin: http://a", "Expect: 100-continue",
	}
	bodies = []string{
		`{"account":{"id":"B"}}`, `{"account":{"id":"A"},"account":{"id":"B"}}`, `{"account":{"id":"A","id":"B"}}`, `{"account":{"ID":"B","id":"A"}}`, `{"Account":{"id":"B"},"account":{"id":"A"}}`, `{"account":{"\u0069d":"B"}}`, `{"account":{"id":"A"},"\u0061ccount":{"id":"B"}}`, `{"account":{"\u0131d":"B","id":"A"}}`, `{"account":{"i\u0064":"B","id":"A"}}`,
		`{"account":{"id":1e0}}`, `{"account":{"id":1.0}}`, `{"account":{"id":-0}}`, `{"account":{"id":01}}`, `{"account":{"id":9007199254740993}}`, `{"account":{"id":1E400}}`, `{"account":{"id":true}}`, `{"account":{"id":null}}`, `{"account":{"id":["A"]}}`, `{"account":{"id":{}}}`, `{"account":{"id":""}}`, `{"account":[{"id":"A"}]}`, `{"account":"A"}`, `{"account":null}`, `[]`, `"A"`, `null`, ``, ` `,
		`{"account":{"id":NaN}}`, `{"account":{"id":"\ud800"}}`, `{"account":{"id":"\ud83c\udf89"}}`, `{"account":{"id":"\u0000A"}}`, `{"account":{"id":"A\u0000"}}`, `{"account":{"id":"\u0041"}}`, `{"account":{"id":"A\ufeff"}}`, `{"account":{"id":"` + "\xff" + `"}}`, `{"account":{"id":"` + "\u00e9" + `"}}`, `{"account":{"id":"A" }}{"account":{"id":"B"}}`, `{"account":{"id":"A"}} x`, `{"account":{"id":"A",}}`, `{'account':{'id':'A'}}`, `{"account":{"id":"A"/**/}}`, `{"account":{"id":"A"}}//`, `{"__proto__":{"account":{"id":"B"}}}`, `{"account":{"__proto__":{"id":"B"}}}`, `{"account.id":"B"}`, `{"account":{"id":" A"}}`,
		"\ufeff" + `{"account":{"id":"A"}}`, `+AHs-"account":{"id":"B"}}`, `{"account":{"id":"A","x":"+ACI-,+ACI-id+ACI-:+ACI-B+ACI-,+ACI-y+ACI-:+ACI-"}}`, wide(`{"account":{"id":"B"}}`, false), wide(`{"account":{"id":"B"}}`, true),
		"account[id]=B", "room=B", "_method=PUT", "_method=POST", "cart=B", "p=9&order=9", "--x\r\nContent-Disposition: form-data; name=\"room\"\r\n\r\nB\r\n--x--\r\n",
	}
	bodyPieces = []string{`"`, `\`, `{`, `}`, `,`, `:`, " ", "\n", "\t", "\f", "\x00", "\u00a0", "\ufeff", "0", "1", ".0", "e1", "A", `\u0041`, `\u`, `\x41`, `"id":"B",`, `,"id":"B"`, `"account":{"id":"B"},`, "/*", "*/", "//", "'", "\xff", "\u2028"}
)

// wide returns text in UTF-16, little endian or big.
func wide(text string, big bool) string {
	var b strings.Builder
	for _, unit := range utf16.Encode([]rune(text)) {
		pair := []byte{byte(unit), byte(unit >> 8)}
		if big {
			slices.Reverse(pair)
		}
		b.Write(pair)
	}
	return b.String()
}

func pick[T any](rnd *rand.Rand, list []T) T { return list[rnd.IntN(len(list))] }

// generate returns a request: an ordinary one or one that has passed, with up to four
// changes.
func generate(rnd *rand.Rand, passed []request) request {
	r := pick(rnd, plainRequests).clone()
	if len(passed) > 0 && rnd.IntN(3) == 0 {
		r = pick(rnd, passed).clone()
	}
	r.http2 = rnd.IntN(4) == 0
	for range rnd.IntN(5) {
		mutate(rnd, &r)
	}
	return r
}

func mutate(rnd *rand.Rand, r *request) {
	switch n := rnd.IntN(20); {
	case n < 8:
		r.target = insert(rnd, r.target, pick(rnd, pick(rnd, [][]string{pieces, frequent})))
	case n < 10 && r.target != "": // another spelling of one character
		at := rnd.IntN(len(r.target))
		c := r.target[at]
		r.target = r.target[:at] + pick(rnd, []string{fmt.Sprintf("%%%02x", c), fmt.Sprintf("%%%02X", c), fmt.Sprintf("%%25%02x", c), string(c ^ 0x20), "", string([]byte{c, c}), fmt.Sprintf("%%c0%%%02x", c|0x80), string(rune(c) + 0xfee0)}) + r.target[at+1:]
	case n < 11:
		r.target += pick(rnd, pieces)
	case n < 12:
		r.target = pick(rnd, pieces) + r.target
	case n < 14:
		r.method = pick(rnd, methods)
	case n < 17:
		if field := pick(rnd, headers); len(r.fields) > 0 && rnd.IntN(2) == 0 {
			r.fields[rnd.IntN(len(r.fields))] = field
		} else if len(r.fields) < 4 {
			r.fields = append(r.fields, field)
		}
	case n < 18:
		r.body = pick(rnd, bodies)
	case r.body != "":
		r.body = insert(rnd, r.body, pick(rnd, bodyPieces))
	default:
		if i := slices.IndexFunc(r.fields, func(f string) bool { return strings.HasPrefix(f, "Cookie: ") }); i >= 0 {
			r.fields[i] = "Cookie: " + insert(rnd, strings.TrimPrefix(r.fields[i], "Cookie: "), pick(rnd, append(bodyPieces, pieces...)))
		}
	}
}

// insert puts a piece somewhere into text, in place of nothing or of one byte.
func insert(rnd *rand.Rand, text, piece string) string {
	at := rnd.IntN(len(text) + 1)
	if rnd.IntN(3) > 0 { // at the border of a part
		for at < len(text) && !strings.ContainsRune("/?&=;\"", rune(text[at])) {
			at++
		}
		if at < len(text) {
			at += rnd.IntN(2)
		}
	}
	return text[:at] + piece + text[min(at+rnd.IntN(2), len(text)):]
}

// smaller returns requests that have a part less than r.
func smaller(r request) (list []request) {
	if r.http2 {
		list = append(list, r.clone())
		list[0].http2 = false
	}
	for i := range r.fields {
		c := r.clone()
		c.fields = slices.Delete(c.fields, i, i+1)
		list = append(list, c)
	}
	for _, part := range []func(*request) *string{
		func(r *request) *string { return &r.method },
		func(r *request) *string { return &r.target },
		func(r *request) *string { return &r.body },
	} {
		for size := len(*part(&r)); size > 0; size /= 2 {
			for at := 0; at+size <= len(*part(&r)); at += size {
				c := r.clone()
				text := part(&c)
				*text = (*text)[:at] + (*text)[at+size:]
				list = append(list, c)
			}
		}
	}
	if r.method != "GET" {
		c := r.clone()
		c.method = "GET"
		list = append(list, c)
	}
	return list
}
