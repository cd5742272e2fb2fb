package chunk

import (
	"unicode/utf8"

	"github.com/redox-loader/redox/golib/internal/fault"
)

// CheckText refuses values of the text kinds that a reader could not decode (fault.Invalid). AppendSample does not look at
// what it copies, because some of a sample may come later.
func (l *Layout) CheckText(vals []Value) error {
	for _, i := range l.texts {
		p, v := &l.slots[i], &vals[i]
		switch {
		case v.Missing:
		case !utf8.Valid(v.Data):
			return fault.New(fault.Invalid, "field %q is not UTF-8", p.name)
		case p.json && !validJSON(v.Data):
			return fault.New(fault.Invalid, "field %q has %d bytes that are not JSON", p.name, len(v.Data))
		}
	}
	return nil
}
