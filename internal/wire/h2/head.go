package h2

import (
	"strings"
	"sync"

	"golang.org/x/net/http2/hpack"

	"github.com/keyway-go/keyway/internal/wire/grammar"
	"github.com/keyway-go/keyway/internal/wire/http1"
)

// Field is a header or trailer field. Names are in lower case.
type Field = hpack.HeaderField

// Request is the head of a request. It is well formed by RFC 9113, section 8,
// and names and values are free of what could end a line of HTTP/1.1.
type Request struct {
	Method    string // a token
	Scheme    string // http or https; "" for CONNECT
	Authority string // or Host; of what net/http takes in a Host, never empty
	Path      string // path and query, without spaces and control characters; "*" for OPTIONS, "" for CONNECT
	Fields    []Field

	Size int // of its fields in bytes, as SETTINGS_MAX_HEADER_LIST_SIZE counts them

	// ContentLength is the length of the body; -1 if that is not known.
	ContentLength int64
	// Body says that a body follows, even if it should turn out to be empty.
	Body bool
}

// block is a list of fields while it is read (RFC 9113, section 4.3). The connection's reader opens
// it with HEADERS, adds frames while open is set, and finishes it; bad and tooLarge record what is
// wrong.
type block struct {
	open     bool // CONTINUATION has to follow
	purpose  purpose
	stream   uint32
	end      bool // nothing follows it on the stream
	code     Code // of the stream's reset, with purposeReset
	left     int  // bytes of fields that are taken
	limit    int  // of them
	count    int  // fields that were decoded
	size     int  // and their bytes
	room     int  // bytes of frames that are taken
	trailer  bool
	regular  bool // pseudo fields have ended
	seen     pseudo
	bad      string // what is malformed; "" for nothing
	tooLarge bool
	host     string
	length   int64 // -1 if there is no Content-Length
	crumbs   []string
	request  Request
	fields   *[]Field // of fieldLists
}

// purpose is what a block is read for.
type purpose uint8

const (
	purposeRequest purpose = iota // opens a stream
	purposeTrailer                // ends a stream's body
	purposeReset                  // is decoded, and its stream is reset
	purposeIgnore                 // is decoded only
)

type pseudo uint8

const (
	seenMethod pseudo = 1 << iota
	seenScheme
	seenAuthority
	seenPath
)

var fieldLists = sync.Pool{New: func() any { list := make([]Field, 0, 24); return &list }}

func freeFields(list *[]Field) {
	if list == nil || cap(*list) > 256 {
		return
	}
	clear(*list)
	*list = (*list)[:0]
	fieldLists.Put(list)
}

func (b *block) beginBlock(p purpose, f frame, limit int) {
	*b = block{
		open: true, purpose: p, stream: f.stream, end: f.has(flagEndStream), left: limit, limit: limit, room: 2*limit + maxFrame,
		trailer: p == purposeTrailer, length: -1, crumbs: b.crumbs[:0], fields: fieldLists.Get().(*[]Field),
	}
}

// maxFields is how many fields a list may have.
const maxFields = 200

// excess bounds how many fields of a list are decoded, and their bytes: beyond this multiple of the
// limits the connection is given up.
const excess = 4

// flood reports whether more was decoded than a client has reason to send.
func (b *block) flood() bool { return b.count > excess*maxFields || b.size > excess*b.limit }

func (b *block) addField(f Field) {
	size := len(f.Name) + len(f.Value) + 32
	b.count++
	b.size += size
	switch {
	case b.bad != "" || b.tooLarge || b.purpose > purposeTrailer:
		return
	case size > b.left, b.count > maxFields:
		b.tooLarge = true
		return
	default:
		b.left -= size
	}
	switch {
	case !grammar.IsValue(f.Value):
		b.bad = "a field's value has control characters, or spaces around it"
	case len(f.Name) > 0 && f.Name[0] == ':':
		b.takePseudo(f)
	case !grammar.IsLowerToken(f.Name):
		b.bad = "a field's name is no token in lower case"
	default:
		b.regular = true
		b.takeField(f)
	}
}

func (b *block) takePseudo(f Field) {
	var kind pseudo
	var into *string
	switch f.Name {
	case ":method":
		kind, into = seenMethod, &b.request.Method
	case ":scheme":
		kind, into = seenScheme, &b.request.Scheme
	case ":authority":
		kind, into = seenAuthority, &b.request.Authority
	case ":path":
		kind, into = seenPath, &b.request.Path
	}
	switch {
	case kind == 0 || b.trailer:
		b.bad = "an unknown pseudo field, or one in trailers"
	case b.regular:
		b.bad = "a pseudo field after others"
	case b.seen&kind != 0:
		b.bad = "a pseudo field twice"
	default:
		b.seen |= kind
		*into = f.Value
	}
}

func (b *block) takeField(f Field) {
	if b.trailer && grammar.IsBeforeBody(f.Name) {
		b.bad = "a field that must not stand in trailers"
		return
	}
	if grammar.IsConnectionField(f.Name) {
		b.bad = "a field of one HTTP/1.1 connection"
		return
	}
	switch f.Name {
	case "te":
		if !strings.EqualFold(f.Value, "trailers") {
			b.bad = "TE with something else than trailers"
		}
		*b.fields = append(*b.fields, f)
	case "host":
		if b.host != "" || f.Value == "" {
			b.bad = "Host twice, or empty"
		}
		b.host = f.Value
	case "content-length":
		n, ok := grammar.ParseLength(f.Value)
		if b.length >= 0 || !ok {
			b.bad = "Content-Length twice, or no number"
		}
		b.length = n
	case "cookie":
		b.crumbs = append(b.crumbs, f.Value)
	default:
		*b.fields = append(*b.fields, f)
	}
}

// finish completes and checks the request. If it is malformed, bad says why.
func (b *block) finish() {
	if len(b.crumbs) > 0 {
		*b.fields = append(*b.fields, Field{Name: "cookie", Value: strings.Join(b.crumbs, "; ")})
	}
	clear(b.crumbs)
	r := &b.request
	r.Fields, r.Size, r.ContentLength, r.Body = *b.fields, b.limit-b.left, b.length, !b.end
	if b.bad != "" || b.tooLarge || b.purpose != purposeRequest {
		return
	}
	if r.Authority == "" {
		r.Authority = b.host
	}
	connect := r.Method == "CONNECT"
	switch {
	case b.host != "" && b.host != r.Authority:
		b.bad = "Host and :authority differ"
	case !http1.SimpleRequest(r.Method, "/", r.Authority):
		b.bad = ":method is no token, or :authority no host"
	case connect && b.seen != seenMethod|seenAuthority:
		b.bad = "CONNECT with :scheme or :path"
	case !connect && r.Scheme != "http" && r.Scheme != "https":
		b.bad = ":scheme is neither http nor https"
	case !connect && !validPath(r.Method, r.Path):
		b.bad = ":path is no path"
	case b.end && b.length > 0:
		b.bad = "the body is shorter than Content-Length"
	case b.end:
		r.ContentLength = 0
	}
}

func validPath(method, p string) bool {
	return grammar.IsTarget(p) && (p[0] == '/' || p == "*" && method == "OPTIONS")
}

// AppendField appends a field of an answer. It leaves out names that are no
// tokens, puts names in lower case, and cleans values, see [grammar.CleanValue].
func AppendField(list []Field, name, value string) []Field {
	lower, ok := lowerNames[name]
	if !ok {
		if lower = strings.ToLower(name); !grammar.IsLowerToken(lower) {
			return list
		}
	}
	return append(list, Field{Name: lower, Value: grammar.CleanValue(value)})
}

// lowerNames has the fields that answers have most, by their canonical names.
var lowerNames = lowered(`
Accept-Ranges Access-Control-Allow-Origin Access-Control-Allow-Credentials Age Alt-Svc Cache-Control
Content-Disposition Content-Encoding Content-Language Content-Range Content-Security-Policy Content-Type Date
Etag Expires Last-Modified Link Location Pragma Referrer-Policy Retry-After Server Set-Cookie
Strict-Transport-Security Traceparent Trailer Vary Via Www-Authenticate X-Content-Type-Options
X-Frame-Options X-Request-Id`)

func lowered(names string) map[string]string {
	lower := make(map[string]string)
	for name := range strings.FieldsSeq(names) {
		lower[name] = strings.ToLower(name)
	}
	return lower
}
