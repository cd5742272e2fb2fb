package main

/*
#include "redox.h"
*/
import "C"

import redox "github.com/redox-loader/redox/golib"

//export goRedoxEngineServe
func goRedoxEngineServe(socket C.int, optionsJSON *C.char) C.redox_status {
	return call("redox_engine_serve", func() error { return redox.Serve(int(socket), options(optionsJSON)) })
}
