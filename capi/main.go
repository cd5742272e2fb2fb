// Package main is the C face of Redox, built with -buildmode=c-shared: the library libredox.so.0 that C and C++
// programs link with include/redox.h and that Python loads.
//
// It holds no logic. A call goes through two files: redox.c, which has the names and the const-correct types of
// redox.h and refuses to enter Go in a forked child, and the export_*.go of its part of the header, which decodes
// the arguments (decode.go), looks up the handle (handle.go), calls package golib and turns the error into a
// status (status.go). It is the only package that may import "C".
//
// Rules that keep both languages safe: C never gets a Go pointer, only handles and, for a lent batch, memory
// outside the Go heap; Go keeps no pointer into the caller's memory after the call returns; no panic crosses the
// boundary.
package main

/*
#include <stdlib.h>
*/
import "C"

import (
	"os"
	"runtime"
	"unsafe"

	redox "github.com/redox-loader/redox/golib"
)

// Go gets one processor more than there are. Otherwise, while all of them assemble batches, a thread that enters the
// library waits for one of them to run out of work, which is when all slots are full: the trainer and the assembly would
// take turns instead of overlapping.
func init() {
	if os.Getenv("GOMAXPROCS") == "" {
		runtime.GOMAXPROCS(runtime.GOMAXPROCS(0) + 1)
	}
}

func init() { redox.Getenv = getenv }

// getenv reads the environment as it is now.
func getenv(name string) string {
	key := C.CString(name)
	defer C.free(unsafe.Pointer(key))
	if value := C.getenv(key); value != nil {
		return C.GoString(value)
	}
	return ""
}

func main() {}
