package buffer

import "testing"

// FuzzArena reads operations out of bytes and compares the arena with a list of who owns which pages: no byte is ever
// lent twice, nothing is refused that fits the quota, and the budget holds.
func FuzzArena(f *testing.F) {
	f.Add([]byte{1, 2, 3, 0x81, 4, 0x80, 200, 0x82, 7, 7, 7})
	f.Add([]byte{255, 254, 16, 17, 18, 0x80, 0x80, 0x80, 33, 34})
	f.Fuzz(func(t *testing.T, ops []byte) {
		if len(ops) > 300 {
			ops = ops[:300]
		}
		const limit = 64 * Page
		b := NewBudget(limit)
		a, err := b.NewArena("fuzz", limit)
		if err != nil {
			t.Skip(err)
		}
		defer a.Close()
		var live []*Region
		owner := map[int64]*Region{} // by page
		used := int64(0)
		for _, x := range ops {
			if x&0x80 != 0 && len(live) > 0 {
				i := int(x&0x7f) % len(live)
				r := live[i]
				pages := Pages(int64(len(r.Bytes())))
				for p := r.Offset(); p < r.Offset()+pages; p += Page {
					delete(owner, p)
				}
				used -= pages
				r.Release()
				live = append(live[:i], live[i+1:]...)
				continue
			}
			size := 1 + int64(x&0x7f)*777
			r := a.Alloc(size)
			if (r != nil) != (used+Pages(size) <= limit) {
				t.Fatalf("alloc %d with %d of %d in use: %v", size, used, limit, r != nil)
			}
			if r == nil {
				continue
			}
			for p := r.Offset(); p < r.Offset()+Pages(size); p += Page {
				if owner[p] != nil {
					t.Fatalf("page %d is lent twice", p)
				}
				owner[p] = r
			}
			r.Bytes()[0], r.Bytes()[size-1] = x, x
			used += Pages(size)
			live = append(live, r)
			if b.Used() > limit || a.Live() != used {
				t.Fatalf("used %d, live %d, want %d", b.Used(), a.Live(), used)
			}
		}
		for _, r := range live {
			r.Release()
		}
	})
}
