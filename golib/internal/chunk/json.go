package chunk

import (
	"bytes"
	"encoding/binary"
)

// maxNesting bounds the stack that a text can make validJSON take. It is that of encoding/json.
const maxNesting = 10_000

// validJSON says whether b is JSON as Python reads and writes it: with NaN, Infinity and -Infinity, which json.Valid
// refuses. It is several times as fast as that, because every sample that is packed goes through it. It does not look
// whether strings are UTF-8.
func validJSON(b []byte) bool {
	rest, ok := jsonValue(jsonSpace(b), maxNesting)
	return ok && len(jsonSpace(rest)) == 0
}

// jsonValue cuts one value off the front of b, and so do the functions below.
func jsonValue(b []byte, nesting int) (rest []byte, ok bool) {
	if len(b) == 0 || nesting == 0 {
		return b, false
	}
	switch b[0] {
	case '"':
		return jsonString(b[1:])
	case '{':
		return jsonItems(b[1:], '}', nesting-1)
	case '[':
		return jsonItems(b[1:], ']', nesting-1)
	case 't':
		return bytes.CutPrefix(b, []byte("true"))
	case 'f':
		return bytes.CutPrefix(b, []byte("false"))
	case 'n':
		return bytes.CutPrefix(b, []byte("null"))
	case 'N':
		return bytes.CutPrefix(b, []byte("NaN"))
	case '-':
		b = b[1:]
	}
	if len(b) > 0 && b[0] == 'I' {
		return bytes.CutPrefix(b, []byte("Infinity"))
	}
	return jsonNumber(b)
}

// jsonItems cuts off what is left of an object or array behind its opening bracket.
func jsonItems(b []byte, end byte, nesting int) (rest []byte, ok bool) {
	if b = jsonSpace(b); len(b) > 0 && b[0] == end {
		return b[1:], true
	}
	for {
		if end == '}' {
			if len(b) == 0 || b[0] != '"' {
				return b, false
			}
			if b, ok = jsonString(b[1:]); !ok {
				return b, false
			}
			if b = jsonSpace(b); len(b) == 0 || b[0] != ':' {
				return b, false
			}
			b = jsonSpace(b[1:])
		}
		if b, ok = jsonValue(b, nesting); !ok {
			return b, false
		}
		if b = jsonSpace(b); len(b) == 0 {
			return b, false
		}
		switch b[0] {
		case end:
			return b[1:], true
		case ',':
			b = jsonSpace(b[1:])
		default:
			return b, false
		}
	}
}

// jsonString cuts off what is left of a string behind its opening quote.
func jsonString(b []byte) (rest []byte, ok bool) {
	for {
		for len(b) >= 8 && !special(binary.LittleEndian.Uint64(b)) {
			b = b[8:]
		}
		for len(b) > 0 && b[0] >= ' ' && b[0] != '"' && b[0] != '\\' {
			b = b[1:]
		}
		if len(b) == 0 || b[0] < ' ' {
			return b, false
		}
		if b[0] == '"' {
			return b[1:], true
		}
		if b, ok = jsonEscape(b[1:]); !ok {
			return b, false
		}
	}
}

// special says whether one of eight bytes is a quote, a backslash or a control character, or perhaps follows one: the
// borrow of a subtraction can only reach bytes above a true hit.
func special(x uint64) bool {
	const ones, high = 0x0101010101010101, 0x8080808080808080
	quote, slash := x^('"'*ones), x^('\\'*ones)
	return ((x-' '*ones)&^x|(quote-ones)&^quote|(slash-ones)&^slash)&high != 0
}

// jsonEscape cuts off what is left of an escape behind its backslash.
func jsonEscape(b []byte) (rest []byte, ok bool) {
	switch {
	case len(b) == 0:
		return b, false
	case b[0] != 'u':
		return b[1:], bytes.IndexByte([]byte(`"\/bfnrt`), b[0]) >= 0
	case len(b) < 5:
		return b, false
	}
	for _, c := range b[1:5] {
		if lower := c | 0x20; !digit(c) && (lower < 'a' || lower > 'f') {
			return b, false
		}
	}
	return b[5:], true
}

// jsonNumber cuts off a number without its sign.
func jsonNumber(b []byte) (rest []byte, ok bool) {
	rest = jsonDigits(b)
	if n := len(b) - len(rest); n == 0 || n > 1 && b[0] == '0' {
		return b, false
	}
	if b = rest; len(b) > 0 && b[0] == '.' {
		if rest = jsonDigits(b[1:]); len(rest) == len(b)-1 {
			return b, false
		}
	}
	if b = rest; len(b) > 0 && b[0]|0x20 == 'e' {
		if b = b[1:]; len(b) > 0 && (b[0] == '+' || b[0] == '-') {
			b = b[1:]
		}
		if rest = jsonDigits(b); len(rest) == len(b) {
			return b, false
		}
	}
	return rest, true
}

func jsonDigits(b []byte) []byte {
	for len(b) > 0 && digit(b[0]) {
		b = b[1:]
	}
	return b
}

func jsonSpace(b []byte) []byte {
	for len(b) > 0 && (b[0] == ' ' || b[0] == '\t' || b[0] == '\n' || b[0] == '\r') {
		b = b[1:]
	}
	return b
}

func digit(c byte) bool { return c >= '0' && c <= '9' }
