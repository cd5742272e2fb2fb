//go:build invariants

package buffer

// poison overwrites freed memory, so that a use after release shows as a wrong sample in every test that compares
// bytes, and not only now and then.
func poison(b []byte) {
	for i := range b {
		b[i] = 0xDB
	}
}
