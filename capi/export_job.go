package main

/*
#include "redox.h"
*/
import "C"

import redox "github.com/redox-loader/redox/golib"

var jobs = newTable[*redox.Job](6)

//export goRedoxJobNew
func goRedoxJobNew(kind, optionsJSON *C.char, out *C.redox_job) C.redox_status {
	return call("redox_job_new", func() error {
		k, err := required(kind, "kind")
		if err != nil {
			return err
		}
		if err := result(out, "out"); err != nil {
			return err
		}
		j, err := redox.NewJob(k, options(optionsJSON))
		if err != nil {
			return err
		}
		return opened(jobs, j, out, func(j *redox.Job) { j.Close() })
	})
}

//export goRedoxJobWait
func goRedoxJobWait(h C.redox_job, ms C.int64_t, buf *C.char, capacity C.size_t, need *C.size_t) C.redox_status {
	return with("redox_job_wait", jobs, uint64(h), func(j *redox.Job) error {
		result, done, err := j.Wait(timeout(ms))
		if err != nil {
			return err
		}
		if err := give(result, buf, capacity, need); err != nil {
			return err
		}
		if !done {
			return errRunning
		}
		return nil
	})
}

//export goRedoxJobCancel
func goRedoxJobCancel(h C.redox_job) C.redox_status {
	return with("redox_job_cancel", jobs, uint64(h), func(j *redox.Job) error {
		j.Cancel()
		return nil
	})
}

//export goRedoxJobClose
func goRedoxJobClose(h C.redox_job) C.redox_status {
	return call("redox_job_close", func() error {
		j, ok := jobs.take(uint64(h), (*redox.Job).Cancel)
		if !ok {
			return stale(uint64(h))
		}
		return j.Close()
	})
}
