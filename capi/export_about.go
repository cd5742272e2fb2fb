package main

/*
#include "redox.h"
*/
import "C"

import (
	"fmt"

	redox "github.com/redox-loader/redox/golib"
)

// sourceHash is that of the sources this library was built from, set by the linker (see build.py).
var sourceHash string

//export goRedoxSourceHash
func goRedoxSourceHash(buf *C.char, capacity C.size_t) {
	_ = give([]byte(sourceHash), buf, capacity, nil) // a hash that does not fit is left empty
}

//export goRedoxLogRead
func goRedoxLogRead(buf *C.char, capacity C.size_t, need *C.size_t) C.redox_status {
	return call("redox_log_read", func() error {
		// Lines that were read are gone, so nothing may be taken that might not fit.
		if capacity < C.REDOX_LOG_MIN {
			if need != nil {
				*need = C.REDOX_LOG_MIN
			}
			return tooSmall("the buffer has %d bytes, %d are needed", capacity, C.REDOX_LOG_MIN)
		}
		if buf == nil {
			return invalid("buf is NULL")
		}
		return give(redox.ReadLog(int(capacity)-1), buf, capacity, need)
	})
}

func versionMessage(abi uint32) string {
	return fmt.Sprintf("the caller was compiled for ABI %d, this library has ABI %d", abi, uint32(C.REDOX_ABI_VERSION))
}
