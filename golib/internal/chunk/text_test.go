package chunk_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/redox-loader/redox/golib/internal/chunk"
	"github.com/redox-loader/redox/golib/internal/fault"
)

// What passes is what Python reads back; json.dumps writes the constants that JSON lacks.
func TestCheckText(t *testing.T) {
	l := chunk.NewLayout(schema(t, "bytes", "str", "json", "json?"))
	check := func(str, json string) error {
		vals := []chunk.Value{{Data: []byte("\xff")}, {Data: []byte(str)}, {Data: []byte(json)}, {Missing: true}}
		return l.CheckText(vals)
	}
	for _, s := range []string{"", "ä", "\x00", "鍵 𝄞"} {
		if err := check(s, "1"); err != nil {
			t.Errorf("str %q: %v", s, err)
		}
	}
	for _, s := range []string{"\xff", "a\x80", "\xed\xa0\x80", "\xc3"} {
		if err := check(s, "1"); !errors.Is(err, fault.Of(fault.Invalid)) || !strings.Contains(err.Error(), `"f1"`) {
			t.Errorf("str %q: %v", s, err)
		}
	}
	for _, s := range []string{
		"null", " [1, 2.5e3]\n", `{"a": "ä", "a": [{}]}`, "NaN", "-Infinity", `[Infinity,NaN,-Infinity]`, `{"NaN":NaN,"\"Infinity":1}`, `"NaN"`,
		`["\\",NaN]`, `"\ud800"`,
	} {
		if err := check("", s); err != nil {
			t.Errorf("json %q: %v", s, err)
		}
	}
	for _, s := range []string{
		"", " ", "{", "{} {}", "'a'", "\"\xff\"", "[1,]", "-NaN", "NaNNaN", "1Infinity", "-1-Infinity", "nan", `["NaN,NaN]`, `{NaN:1}`, `"NaN\`,
		"\"\n\"", `"\`,
	} {
		if err := check("", s); !errors.Is(err, fault.Of(fault.Invalid)) || !strings.Contains(err.Error(), `"f2"`) {
			t.Errorf("json %q: %v", s, err)
		}
	}
}

func BenchmarkCheckText(b *testing.B) {
	row := `{"text":"` + strings.Repeat("some words, ä and so on ", 40) + `","n":[1,2.5,3]}`
	for _, kind := range []string{"str", "json"} {
		b.Run(kind, func(b *testing.B) {
			l, vals := chunk.NewLayout(schema(b, kind)), []chunk.Value{{Data: []byte(row)}}
			b.SetBytes(int64(len(row)))
			b.ReportAllocs()
			for b.Loop() {
				if err := l.CheckText(vals); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// FuzzValidJSON: what has none of Python's constants is judged as encoding/json judges it.
func FuzzValidJSON(f *testing.F) {
	for _, s := range []string{
		`{"a": [1, -2.5e+3, 0, true, false, null, "\u00e9\\\"\n 12345678"], "b": {}}`, "[]", "00", "-", "1.", ".5", "1e", `"\x"`, `"\u12g4"`,
		"\"1234567\x1f\"", `{"a" 1}`, `{1:2}`, "[1 2]", "tru", "\ufeff1", `{"a":1,}`, `"1234567\"`, "\"\x81\x22\"", strings.Repeat("[", 10_001),
		strings.Repeat("[", 10_000) + strings.Repeat("]", 10_000),
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		got, want := chunk.ValidJSON(b), json.Valid(b)
		if got && !want && (bytes.Contains(b, []byte("NaN")) || bytes.Contains(b, []byte("Infinity"))) {
			return // TestCheckText has those
		}
		if got != want {
			t.Errorf("%.100q: %v", b, got)
		}
	})
}
