package main

/*
#include "redox.h"
*/
import "C"

import redox "github.com/redox-loader/redox/golib"

var writers = newTable[*redox.Writer](5)

//export goRedoxWriterNew
func goRedoxWriterNew(dst, optionsJSON *C.char, out *C.redox_writer) C.redox_status {
	return call("redox_writer_new", func() error {
		path, err := required(dst, "dst")
		if err != nil {
			return err
		}
		if err := result(out, "out"); err != nil {
			return err
		}
		w, err := redox.NewWriter(path, options(optionsJSON))
		if err != nil {
			return err
		}
		return opened(writers, w, out, func(w *redox.Writer) { w.Abort() })
	})
}

//export goRedoxWriterWrite
func goRedoxWriterWrite(h C.redox_writer, fields *C.redox_field, n C.uint32_t) C.redox_status {
	return with("redox_writer_write", writers, uint64(h), func(w *redox.Writer) error {
		values, err := decodeValues(fields, n)
		if err != nil {
			return err
		}
		return w.Write(values)
	})
}

//export goRedoxWriterWriteFrom
func goRedoxWriterWriteFrom(h C.redox_writer, fields *C.redox_field, n C.uint32_t, source C.uint64_t,
	key *C.char) C.redox_status {
	return with("redox_writer_write_from", writers, uint64(h), func(w *redox.Writer) error {
		values, err := decodeValues(fields, n)
		if err != nil {
			return err
		}
		return w.WriteFrom(uint64(source), text(key), values)
	})
}

//export goRedoxWriterResumed
func goRedoxWriterResumed(h C.redox_writer, samples *C.uint64_t) C.redox_status {
	return with("redox_writer_resumed", writers, uint64(h), func(w *redox.Writer) error {
		if err := result(samples, "samples"); err != nil {
			return err
		}
		*samples = C.uint64_t(w.Resumed())
		return nil
	})
}

//export goRedoxWriterCommit
func goRedoxWriterCommit(h C.redox_writer) C.redox_status {
	// The handle stays good meanwhile, so that an abort can end the commit.
	status := with("redox_writer_commit", writers, uint64(h), (*redox.Writer).Commit)
	writers.takeWithin(uint64(h), (*redox.Writer).Cancel, leaveAfter)
	return status
}

//export goRedoxWriterAbort
func goRedoxWriterAbort(h C.redox_writer) C.redox_status {
	return call("redox_writer_abort", func() error {
		w, ok := writers.takeWithin(uint64(h), (*redox.Writer).Cancel, leaveAfter)
		if !ok {
			return stale(uint64(h))
		}
		return w.Abort()
	})
}
