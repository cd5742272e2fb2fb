package node

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestRest: who is about to end waits for nodes that are slower, for a bounded time, and not for those that have gone.
func TestRest(t *testing.T) {
	d := write(t, fixedShape(t, 1500, 20, 100))
	for _, gone := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			s := faultSetup(t, d, 1, 1)
			c := newCluster(t, d, s)
			c.runs[1].credit = 8
			if _, err := c.train(1, 0, 0, 5); err != nil {
				t.Fatal(err)
			}
			if !c.runs[1].Rest(time.Second) {
				t.Error("node 1 waits in the middle of its epoch")
			}
			c.rankEpoch(0, 0, 0)
			begin := time.Now()
			if c.runs[0].Rest(3 * time.Second) {
				t.Error("node 0 does not wait for node 1")
			}
			if took := time.Since(begin); took < 3*time.Second || took > 4*time.Second {
				t.Errorf("waited %v", took)
			}
			begin = time.Now()
			if gone {
				c.net.Kill(1, true)
			} else {
				go func() { // it comes to its end, or to that of the test
					var err error
					for done := false; !done && err == nil; {
						_, done, err = c.next(c.runs[1], 1)
					}
				}()
			}
			if !c.runs[0].Rest(time.Minute) || time.Since(begin) > 5*time.Second {
				t.Errorf("gone: %v; node 0 waited %v", gone, time.Since(begin))
			}
			c.close()
		})
	}
}
