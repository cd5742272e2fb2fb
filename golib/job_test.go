package redox_test

import (
	"testing"
	"time"

	redox "github.com/redox-loader/redox/golib"
)

// The end that has come counts, not a timeout of 0 that is over as well.
func TestJobThatHasEnded(t *testing.T) {
	j, err := redox.NewJob("verify", []byte(`{"path": "/nowhere at all"}`))
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	_, _, failure := j.Wait(-1)
	if failure == nil {
		t.Fatal("nothing was verified")
	}
	for range 100 {
		if _, done, err := j.Wait(0); !done || err != failure {
			t.Fatalf("done=%v, %v", done, err)
		}
	}
	if _, done, _ := j.Wait(time.Minute); !done {
		t.Error("not done")
	}
}
