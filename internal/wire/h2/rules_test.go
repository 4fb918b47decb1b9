package h2

import (
	"strings"
	"testing"
)

func frames(list ...[]byte) []byte {
	var all []byte
	for _, f := range list {
		all = append(all, f...)
	}
	return all
}

// What a client may say, and what comes of it.
func TestRules(t *testing.T) {
	const ok = `HEADERS 1 :status=200 x=GET http h/ 0 "" end`
	for name, tt := range map[string]struct {
		send []byte
		want string
	}{
		"request":                {open(1, true, get()), ok},
		"padded":                 {raw(frameHeaders, flagEndHeaders|flagEndStream|flagPadded, 1, "\x03"+get()+"abc"), ok},
		"priority":               {raw(frameHeaders, flagEndHeaders|flagEndStream|flagPriority, 1, word(3)+"\x00"+get()), ok},
		"continued":              {frames(raw(frameHeaders, flagEndStream, 1, get()[:5]), raw(frameContinuation, 0, 1, ""), raw(frameContinuation, flagEndHeaders, 1, get()[5:])), ok},
		"stream 7":               {open(7, true, get()), strings.Replace(ok, "1", "7", 1)},
		"extension":              {frames(raw(0x77, 0xff, 5, "x"), open(1, true, get())), ok},
		"old priority":           {frames(raw(framePriority, 0, 9, word(3)+"\x00"), open(1, true, get())), ok},
		"window of one that was": {frames(open(1, true, get("te", "gzip")), appendWord(nil, frameWindowUpdate, 1, 1)), "RESET 1 PROTOCOL_ERROR"},
		"body":                   {frames(open(1, false, post()), data(1, true, "abc")), `HEADERS 1 :status=200 x=POST http h/ -1 "abc" end`},
		"padded body":            {frames(open(1, false, post()), raw(frameData, flagPadded|flagEndStream, 1, "\x02abc\x00\x00")), `HEADERS 1 :status=200 x=POST http h/ -1 "abc" end`},
		"body of known length":   {frames(open(1, false, post("content-length", "3")), data(1, false, "ab"), data(1, true, "c")), `HEADERS 1 :status=200 x=POST http h/ 3 "abc" end`},
		"no body after all":      {frames(open(1, false, post()), data(1, true, "")), `HEADERS 1 :status=200 x=POST http h/ -1 "" end`},
		"trailers":               {frames(open(1, false, post()), data(1, false, "abc"), open(1, true, list("sum", "1"))), `HEADERS 1 :status=200 x=POST http h/ -1 "abc" sum=1 end`},
		"cookies":                {open(1, true, get("cookie", "a=1", "x", "y", "cookie", "b=2")), `HEADERS 1 :status=200 x=GET http h/ 0 "" x=y cookie=a=1; b=2 end`},
		"host":                   {open(1, true, list(":method", "GET", ":scheme", "https", ":path", "/", "host", "g")), `HEADERS 1 :status=200 x=GET https g/ 0 "" end`},
		"equal host":             {open(1, true, get("host", "h")), ok},
		"OPTIONS *":              {open(1, true, list(":method", "OPTIONS", ":scheme", "http", ":path", "*", "host", "g")), `HEADERS 1 :status=200 x=OPTIONS http g* 0 "" end`},
		"CONNECT":                {open(1, true, list(":method", "CONNECT", ":authority", "h:1")), `HEADERS 1 :status=200 x=CONNECT  h:1 0 "" end`},
		"te":                     {open(1, true, get("te", "trailers")), `HEADERS 1 :status=200 x=GET http h/ 0 "" te=trailers end`},
		"ping":                   {raw(framePing, 0, 0, "12345678"), `PING "12345678" ack=true`},
		"settings":               {settingsFrame(1, 0, 2, 0, 3, 0, 4, maxWindow, 5, 1<<24-1, 6, 1, 99, 1), "SETTINGS ack=true"},

		// Malformed requests end their stream.
		"upper case":          {open(1, true, get("X-A", "b")), "RESET 1 PROTOCOL_ERROR"},
		"no name":             {open(1, true, get("", "b")), "RESET 1 PROTOCOL_ERROR"},
		"space in name":       {open(1, true, get("x a", "b")), "RESET 1 PROTOCOL_ERROR"},
		"colon in name":       {open(1, true, get("x:a", "b")), "RESET 1 PROTOCOL_ERROR"},
		"line break":          {open(1, true, get("x", "a\r\nevil: 1")), "RESET 1 PROTOCOL_ERROR"},
		"NUL":                 {open(1, true, get("x", "a\x00")), "RESET 1 PROTOCOL_ERROR"},
		"space before":        {open(1, true, get("x", " a")), "RESET 1 PROTOCOL_ERROR"},
		"tab behind":          {open(1, true, get("x", "a\t")), "RESET 1 PROTOCOL_ERROR"},
		"connection":          {open(1, true, get("connection", "close")), "RESET 1 PROTOCOL_ERROR"},
		"transfer-encoding":   {open(1, false, post("transfer-encoding", "chunked")), "RESET 1 PROTOCOL_ERROR"},
		"upgrade":             {open(1, true, get("upgrade", "h2c")), "RESET 1 PROTOCOL_ERROR"},
		"keep-alive":          {open(1, true, get("keep-alive", "1")), "RESET 1 PROTOCOL_ERROR"},
		"proxy-connection":    {open(1, true, get("proxy-connection", "x")), "RESET 1 PROTOCOL_ERROR"},
		"te: gzip":            {open(1, true, get("te", "trailers, gzip")), "RESET 1 PROTOCOL_ERROR"},
		"two paths":           {open(1, true, list(":method", "GET", ":scheme", "http", ":authority", "h", ":path", "/", ":path", "/b")), "RESET 1 PROTOCOL_ERROR"},
		"no path":             {open(1, true, list(":method", "GET", ":scheme", "http", ":authority", "h")), "RESET 1 PROTOCOL_ERROR"},
		"empty path":          {open(1, true, list(":method", "GET", ":scheme", "http", ":authority", "h", ":path", "")), "RESET 1 PROTOCOL_ERROR"},
		"relative path":       {open(1, true, list(":method", "GET", ":scheme", "http", ":authority", "h", ":path", "a")), "RESET 1 PROTOCOL_ERROR"},
		"absolute path":       {open(1, true, list(":method", "GET", ":scheme", "http", ":authority", "h", ":path", "http://g/")), "RESET 1 PROTOCOL_ERROR"},
		"space in path":       {open(1, true, list(":method", "GET", ":scheme", "http", ":authority", "h", ":path", "/ HTTP/1.1")), "RESET 1 PROTOCOL_ERROR"},
		"GET *":               {open(1, true, list(":method", "GET", ":scheme", "http", ":authority", "h", ":path", "*")), "RESET 1 PROTOCOL_ERROR"},
		"no method":           {open(1, true, list(":scheme", "http", ":authority", "h", ":path", "/")), "RESET 1 PROTOCOL_ERROR"},
		"bad method":          {open(1, true, list(":method", "GET /", ":scheme", "http", ":authority", "h", ":path", "/")), "RESET 1 PROTOCOL_ERROR"},
		"no scheme":           {open(1, true, list(":method", "GET", ":authority", "h", ":path", "/")), "RESET 1 PROTOCOL_ERROR"},
		"ftp":                 {open(1, true, list(":method", "GET", ":scheme", "ftp", ":authority", "h", ":path", "/")), "RESET 1 PROTOCOL_ERROR"},
		"no authority":        {open(1, true, list(":method", "GET", ":scheme", "http", ":path", "/")), "RESET 1 PROTOCOL_ERROR"},
		"bad authority":       {open(1, true, list(":method", "GET", ":scheme", "http", ":authority", "h/../", ":path", "/")), "RESET 1 PROTOCOL_ERROR"},
		"user in authority":   {open(1, true, list(":method", "GET", ":scheme", "http", ":authority", "u@h", ":path", "/")), "RESET 1 PROTOCOL_ERROR"},
		"other host":          {open(1, true, get("host", "g")), "RESET 1 PROTOCOL_ERROR"},
		"two hosts":           {open(1, true, get("host", "h", "host", "h")), "RESET 1 PROTOCOL_ERROR"},
		"pseudo behind":       {open(1, true, list(":method", "GET", ":scheme", "http", "x", "y", ":authority", "h", ":path", "/")), "RESET 1 PROTOCOL_ERROR"},
		"unknown pseudo":      {open(1, true, list(":method", "GET", ":scheme", "http", ":authority", "h", ":path", "/", ":protocol", "websocket")), "RESET 1 PROTOCOL_ERROR"},
		"pseudo of an answer": {open(1, true, get(":status", "200")), "RESET 1 PROTOCOL_ERROR"},
		"CONNECT with path":   {open(1, true, list(":method", "CONNECT", ":authority", "h:1", ":path", "/")), "RESET 1 PROTOCOL_ERROR"},
		"length of no body":   {open(1, true, post("content-length", "3")), "RESET 1 PROTOCOL_ERROR"},
		"bad length":          {open(1, false, post("content-length", "+3")), "RESET 1 PROTOCOL_ERROR"},
		"two lengths":         {open(1, false, post("content-length", "3", "content-length", "3")), "RESET 1 PROTOCOL_ERROR"},
		"body too short":      {frames(open(1, false, post("content-length", "3")), data(1, true, "ab")), "RESET 1 PROTOCOL_ERROR"},
		"body too long":       {frames(open(1, false, post("content-length", "3")), data(1, true, "abcd")), "RESET 1 PROTOCOL_ERROR"},
		"short with trailers": {frames(open(1, false, post("content-length", "3")), open(1, true, list("a", "b"))), "RESET 1 PROTOCOL_ERROR"},
		"trailers go on":      {frames(open(1, false, post()), open(1, false, list("a", "b"))), "RESET 1 PROTOCOL_ERROR"},
		"pseudo in trailers":  {frames(open(1, false, post()), open(1, true, list(":path", "/b"))), "RESET 1 PROTOCOL_ERROR"},
		"length in trailers":  {frames(open(1, false, post()), open(1, true, list("content-length", "0"))), "RESET 1 PROTOCOL_ERROR"},
		"own parent":          {raw(frameHeaders, flagEndHeaders|flagEndStream|flagPriority, 1, word(1)+"\x00"+get()), "RESET 1 PROTOCOL_ERROR"},
		"priority too short":  {raw(framePriority, 0, 1, "1234"), "RESET 1 FRAME_SIZE_ERROR"},
		"large head":          {open(1, true, get("x", strings.Repeat("y", 4<<10))), "HEADERS 1 :status=431 end"},
		"data behind the end": {frames(open(1, true, get("wait", "1")), data(1, true, "x")), "RESET 1 STREAM_CLOSED"},
		"head behind the end": {frames(open(1, true, get("wait", "1")), open(1, true, get())), "RESET 1 STREAM_CLOSED"},
		"update by nothing":   {frames(open(1, false, post()), appendWord(nil, frameWindowUpdate, 1, 0)), "RESET 1 PROTOCOL_ERROR"},
		"update too far":      {frames(open(1, false, post()), appendWord(nil, frameWindowUpdate, 1, maxWindow)), "RESET 1 FLOW_CONTROL_ERROR"},

		// What leaves the connection in doubt ends it.
		"stream 2":               {open(2, true, get()), "GOAWAY 0 PROTOCOL_ERROR"},
		"stream 0":               {open(0, true, get()), "GOAWAY 0 PROTOCOL_ERROR"},
		"long padding":           {raw(frameHeaders, flagEndHeaders|flagPadded, 1, "\x05abc"), "GOAWAY 0 PROTOCOL_ERROR"},
		"no padding":             {raw(frameHeaders, flagEndHeaders|flagPadded, 1, ""), "GOAWAY 0 PROTOCOL_ERROR"},
		"cut priority":           {raw(frameHeaders, flagEndHeaders|flagPriority, 1, "abc"), "GOAWAY 0 FRAME_SIZE_ERROR"},
		"bad compression":        {open(1, true, "\xff\xff\xff\xff\xff\xff"), "GOAWAY 1 COMPRESSION_ERROR"},
		"cut compression":        {open(1, true, "\x00"), "GOAWAY 1 COMPRESSION_ERROR"},
		"between continuations":  {frames(raw(frameHeaders, 0, 1, get()), raw(framePing, 0, 0, "12345678")), "GOAWAY 1 PROTOCOL_ERROR"},
		"continuation elsewhere": {frames(raw(frameHeaders, 0, 1, get()), raw(frameContinuation, flagEndHeaders, 3, "")), "GOAWAY 1 PROTOCOL_ERROR"},
		"continuation alone":     {raw(frameContinuation, flagEndHeaders, 1, ""), "GOAWAY 0 PROTOCOL_ERROR"},
		"push":                   {raw(framePushPromise, flagEndHeaders, 1, word(2)), "GOAWAY 0 PROTOCOL_ERROR"},
		"data on 0":              {data(0, true, "x"), "GOAWAY 0 PROTOCOL_ERROR"},
		"data on none":           {data(1, true, "x"), "GOAWAY 0 PROTOCOL_ERROR"},
		"data on 2":              {data(2, true, "x"), "GOAWAY 0 PROTOCOL_ERROR"},
		"reset of none":          {raw(frameReset, 0, 1, word(8)), "GOAWAY 0 PROTOCOL_ERROR"},
		"reset too short":        {raw(frameReset, 0, 1, "123"), "GOAWAY 0 FRAME_SIZE_ERROR"},
		"update of none":         {appendWord(nil, frameWindowUpdate, 1, 1), "GOAWAY 0 PROTOCOL_ERROR"},
		"update too short":       {raw(frameWindowUpdate, 0, 0, "123"), "GOAWAY 0 FRAME_SIZE_ERROR"},
		"update of all by 0":     {appendWord(nil, frameWindowUpdate, 0, 0), "GOAWAY 0 PROTOCOL_ERROR"},
		"update of all too far":  {appendWord(nil, frameWindowUpdate, 0, maxWindow), "GOAWAY 0 FLOW_CONTROL_ERROR"},
		"ping on 1":              {raw(framePing, 0, 1, "12345678"), "GOAWAY 0 PROTOCOL_ERROR"},
		"short ping":             {raw(framePing, 0, 0, "1234567"), "GOAWAY 0 FRAME_SIZE_ERROR"},
		"goaway on 1":            {raw(frameGoAway, 0, 1, "12345678"), "GOAWAY 0 PROTOCOL_ERROR"},
		"short goaway":           {raw(frameGoAway, 0, 0, "1234567"), "GOAWAY 0 FRAME_SIZE_ERROR"},
		"priority of 0":          {raw(framePriority, 0, 0, "12345"), "GOAWAY 0 PROTOCOL_ERROR"},
		"settings on 1":          {raw(frameSettings, 0, 1, ""), "GOAWAY 0 PROTOCOL_ERROR"},
		"cut settings":           {raw(frameSettings, 0, 0, "12345"), "GOAWAY 0 FRAME_SIZE_ERROR"},
		"ack with more":          {raw(frameSettings, flagAck, 0, "123456"), "GOAWAY 0 FRAME_SIZE_ERROR"},
		"push of 2":              {settingsFrame(2, 2), "GOAWAY 0 PROTOCOL_ERROR"},
		"huge window":            {settingsFrame(4, 1<<31), "GOAWAY 0 FLOW_CONTROL_ERROR"},
		"window beyond":          {frames(open(1, false, post()), appendWord(nil, frameWindowUpdate, 1, 1<<20), settingsFrame(4, maxWindow)), "GOAWAY 1 FLOW_CONTROL_ERROR"},
		"small frames":           {settingsFrame(5, 1), "GOAWAY 0 PROTOCOL_ERROR"},
		"large frame":            {appendFrame(nil, frame{length: maxFrame + 1, kind: frameData, stream: 1}), "GOAWAY 0 FRAME_SIZE_ERROR"},
		"very large head":        {frames(raw(frameHeaders, 0, 1, strings.Repeat(" ", maxFrame)), raw(frameContinuation, 0, 1, strings.Repeat(" ", maxFrame))), "GOAWAY 1 ENHANCE_YOUR_CALM"},
	} {
		t.Run(name, func(t *testing.T) {
			release := make(chan struct{})
			c := greet(t, func(s *Stream) {
				for _, f := range s.Fields {
					if f.Name == "wait" {
						<-release
					}
				}
				echo(s)
			})
			c.send(tt.send)
			c.expect(tt.want)
			close(release)
			if strings.HasPrefix(tt.want, "GOAWAY") {
				c.expect("closed")
				return
			}
			c.settle()
			c.send(open(101, true, get()))
			c.expect(`HEADERS 101 :status=200 x=GET http h/ 0 "" end`)
		})
	}
}

func TestBeginnings(t *testing.T) {
	for name, tt := range map[string]struct{ send, want string }{
		"another preface":   {"PRI * HTTP/2.0\r\n\r\nSM\r\n\r!", "GOAWAY 0 PROTOCOL_ERROR"},
		"no settings":       {preface + string(raw(framePing, 0, 0, "12345678")), "GOAWAY 0 PROTOCOL_ERROR"},
		"acknowledged only": {preface + string(ackFrame), "GOAWAY 0 PROTOCOL_ERROR"},
		"settings":          {preface + string(settingsFrame()), "SETTINGS ack=true"},
	} {
		t.Run(name, func(t *testing.T) {
			s := Server{MaxStreams: 1, MaxHeaderBytes: 100, HeadTicks: 10, IdleTicks: 10}
			c := connect(t, &s, echo)
			c.send([]byte(tt.send))
			c.expect("SETTINGS ack=false", tt.want)
		})
	}
}

// A stream that the client does not know to be over yet may get more.
func TestLateFrames(t *testing.T) {
	c := greet(t, func(s *Stream) { s.Answer(200, nil, nil, true) })
	c.send(open(1, false, post()))
	c.expect("HEADERS 1 :status=200 end", "RESET 1 NO_ERROR")
	c.send(data(1, false, "late"), appendWord(nil, frameWindowUpdate, 1, 10), open(1, true, list("sum", "1")), raw(frameReset, 0, 1, word(0)))
	c.settle()
	c.send(open(3, true, get()))
	c.expect("HEADERS 3 :status=200 end")
	c.send(data(3, true, "x"))
	c.expect("RESET 3 STREAM_CLOSED")
	c.send(open(5, true, get()))
	c.expect("HEADERS 5 :status=200 end")
	c.send(open(5, true, get()))
	c.expect("GOAWAY 5 STREAM_CLOSED", "closed")
}
