package attach

import (
	"bytes"
	"strings"
	"testing"
)

func TestCursorTakesTheNewestWordOnce(t *testing.T) {
	const size = 100
	expect := func(c *cursor, epoch uint64, position int64) {
		t.Helper()
		if e, p := c.begin(size); e != epoch || p != position {
			t.Fatalf("begins epoch %d at %d, expected epoch %d at %d", e, p, epoch, position)
		}
	}
	var c cursor
	first := word{serial: 1, epoch: 4, position: 30, seen: -1} // a state was loaded
	c.tell(first)
	expect(&c, 4, 30)
	c.tell(first) // a copy of the object says it again
	expect(&c, 5, 0)
	c.tell(word{serial: 2, epoch: 9, named: true, seen: -1})
	c.tell(first)
	expect(&c, 9, 0)
	expect(&c, 10, 0)
	c.tell(word{serial: 3, epoch: 2, position: size, seen: -1}) // a state at the end of an epoch goes on with the next
	expect(&c, 3, 0)
	c.tell(word{serial: 4, epoch: 2, position: size, named: true, seen: -1}) // but set_epoch(2) has nothing left
	expect(&c, 2, size)
	second := word{serial: 5, epoch: 2, position: 30, seen: -1} // the state of another worker of a pass that has begun
	c.heard(second)
	c.tell(second) // a persistent worker says it again when the next pass begins
	expect(&c, 3, 0)

	var after cursor // of an engine in the place of one that died
	after.tell(word{serial: 1, epoch: 4, position: 30, seen: 6})
	expect(&after, 7, 0)
}

func TestOptionsThatDiffer(t *testing.T) {
	const have = `{"path": "/d", "loader": {"shuffle_seed": 18446744073709551615, "fields": ["a", "b"]}}`
	for got, option := range map[string]string{
		have: "",
		`{"loader": {"fields": ["a", "b"], "shuffle_seed": 18446744073709551615}, "path": "/d"}`:              "",
		`{"path": "/d", "loader": {"shuffle_seed": 18446744073709551614, "fields": ["a", "b"]}}`:              "shuffle_seed",
		`{"path": "/d", "loader": {"shuffle_seed": 18446744073709551615, "fields": ["b", "a"]}}`:              "fields",
		`{"path": "/d", "loader": {"shuffle_seed": 18446744073709551615, "fields": ["a", "b"], "window": 3}}`: "window",
		`{"path": "/e", "loader": {"shuffle_seed": 18446744073709551615, "fields": ["a", "b"]}}`:              "path",
	} {
		err := sameOptions([]byte(have), []byte(got))
		if option == "" && err != nil || option != "" && (err == nil || !strings.HasPrefix(err.Error(), option+"=")) {
			t.Errorf("%s: %v", got, err)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add(message{kind: begin, number: 7, body: numbers(1, 2, 3)}.append(nil))
	f.Add([]byte{1, 1, 0})
	f.Add([]byte{2, 99, 0, 0, 0, 0, 0, 0, 1})
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := parse(b)
		if err != nil {
			return
		}
		if again := m.append(nil); !bytes.Equal(again[4:], b[4:]) || again[0] != b[0] {
			t.Fatalf("%x was read as %x", b, again)
		}
		r := reader{body: m.body}
		worker, workers, list, err := parseRead(&r, nil)
		if fits := len(m.body)%8 == 0; err == nil && (!fits || worker >= workers || len(list) != len(m.body)/8-1) {
			t.Fatalf("a body of %d bytes: READ of %d samples, worker %d of %d", len(m.body), len(list), worker, workers)
		}
		r = reader{body: m.body}
		_, _, _ = r.word(), r.u32(), r.i64()
		if whole := len(m.body) == 5*8+4+8; whole != (r.err() == nil) {
			t.Fatalf("a body of %d bytes: %v", len(m.body), r.err())
		}
	})
}
