package node

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/redox-loader/redox/golib/internal/store"
)

// TestFindIsPatientWithEachTable: looking through a large data set may take longer than any one read may.
func TestFindIsPatientWithEachTable(t *testing.T) {
	d := write(t, fixedShape(t, 400, 10, 8))
	synctest.Test(t, func(t *testing.T) {
		f, source := d.faulty(store.Buffered)
		f.Delay = time.Second
		r := NewReader(source, d.schema, &d.index, 0)
		defer r.Close()
		begin := time.Now()
		if n, found, err := r.Find("1399", 3*time.Second); n != 399 || !found || err != nil {
			t.Errorf("%d, %v, %v", n, found, err)
		}
		if took := time.Since(begin); took > 40/defaultReaders*time.Second+time.Second {
			t.Errorf("40 tables, %d at once, took %v", defaultReaders, took)
		}
	})
}
