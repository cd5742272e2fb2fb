package main

/*
#include "redox.h"
*/
import "C"

import (
	"unsafe"

	redox "github.com/redox-loader/redox/golib"
)

var (
	loaders = newTable[*redox.Loader](3)
	slots   = newTable[*redox.Slot](4)
)

// references resolves the handles inside a loader's options and holds them until the loader has been made.
type references struct{ release []func() }

func (r *references) subset(h uint64) (*redox.Subset, bool) { return hold(r, subsets, h) }
func (r *references) loader(h uint64) (*redox.Loader, bool) { return hold(r, loaders, h) }
func (r *references) mesh(h uint64) (*redox.Mesh, bool)     { return hold(r, meshes, h) }

func (r *references) resolver() redox.Resolver {
	return redox.Resolver{Subset: r.subset, Loader: r.loader, Mesh: r.mesh}
}

func hold[T any](r *references, t *table[T], h uint64) (T, bool) {
	v, ok := t.get(h)
	if ok {
		r.release = append(r.release, func() { t.put(h) })
	}
	return v, ok
}

func (r *references) done() {
	for _, release := range r.release {
		release()
	}
}

//export goRedoxLoaderNew
func goRedoxLoaderNew(ds C.redox_dataset, optionsJSON *C.char, out *C.redox_loader) C.redox_status {
	return with("redox_loader_new", datasets, uint64(ds), func(d *redox.Dataset) error {
		if err := result(out, "out"); err != nil {
			return err
		}
		var refs references
		defer refs.done()
		l, err := d.NewLoader(options(optionsJSON), refs.resolver())
		if err != nil {
			return err
		}
		return opened(loaders, l, out, func(l *redox.Loader) { l.Close() })
	})
}

//export goRedoxNextBatch
func goRedoxNextBatch(h C.redox_loader, batch *C.redox_batch, ms C.int64_t) C.redox_status {
	return with("redox_next_batch", loaders, uint64(h), func(l *redox.Loader) error {
		b, err := decodeBatch(batch)
		if err != nil {
			return err
		}
		defer encodeBatch(batch, b)
		return l.NextBatch(b, timeout(ms))
	})
}

//export goRedoxNextParts
func goRedoxNextParts(h C.redox_loader, batch *C.redox_batch, parts unsafe.Pointer, ms C.int64_t) C.redox_status {
	return with("redox_next_parts", loaders, uint64(h), func(l *redox.Loader) error {
		b, err := decodeBatch(batch)
		if err != nil {
			return err
		}
		if err := decodeParts(parts, b); err != nil {
			return err
		}
		defer encodeBatch(batch, b)
		return l.NextBatch(b, timeout(ms))
	})
}

//export goRedoxAcquire
func goRedoxAcquire(h C.redox_loader, batch *C.redox_batch, ms C.int64_t, out *C.redox_slot) C.redox_status {
	return with("redox_acquire", loaders, uint64(h), func(l *redox.Loader) error {
		fields, err := fieldsOf(batch)
		if err != nil {
			return err
		}
		if err := result(out, "slot"); err != nil {
			return err
		}
		b := &redox.Batch{Fields: make([]redox.Column, len(fields))}
		s, err := l.Acquire(b, timeout(ms))
		if err != nil {
			encodeBatch(batch, b)
			return err
		}
		if err := opened(slots, s, out, (*redox.Slot).Release); err != nil {
			return err
		}
		lendBatch(batch, b)
		return nil
	})
}

//export goRedoxRelease
func goRedoxRelease(slot C.redox_slot) C.redox_status {
	return call("redox_release", func() error {
		s, ok := slots.take(uint64(slot), nil)
		if !ok {
			return stale(uint64(slot))
		}
		s.Release()
		return nil
	})
}

//export goRedoxSetEpoch
func goRedoxSetEpoch(h C.redox_loader, epoch C.uint64_t) C.redox_status {
	return with("redox_set_epoch", loaders, uint64(h), func(l *redox.Loader) error {
		return l.SetEpoch(uint64(epoch))
	})
}

//export goRedoxState
func goRedoxState(h C.redox_loader, buf *C.char, capacity C.size_t, need *C.size_t) C.redox_status {
	return with("redox_state", loaders, uint64(h), func(l *redox.Loader) error {
		state, err := l.StateJSON()
		if err != nil {
			return err
		}
		return give(state, buf, capacity, need)
	})
}

//export goRedoxRestore
func goRedoxRestore(h C.redox_loader, state *C.char) C.redox_status {
	return with("redox_restore", loaders, uint64(h), func(l *redox.Loader) error {
		if state == nil {
			return invalid("json is NULL")
		}
		return l.Restore(options(state))
	})
}

//export goRedoxStats
func goRedoxStats(h C.redox_loader, buf *C.char, capacity C.size_t, need *C.size_t) C.redox_status {
	return with("redox_stats", loaders, uint64(h), func(l *redox.Loader) error {
		stats, err := l.StatsJSON()
		if err != nil {
			return err
		}
		return give(stats, buf, capacity, need)
	})
}

//export goRedoxCancel
func goRedoxCancel(h C.redox_loader) C.redox_status {
	return with("redox_cancel", loaders, uint64(h), func(l *redox.Loader) error {
		l.Cancel()
		return nil
	})
}

//export goRedoxLoaderRest
func goRedoxLoaderRest(h C.redox_loader, ms C.int64_t) C.redox_status {
	return with("redox_loader_rest", loaders, uint64(h), func(l *redox.Loader) error {
		return l.Rest(timeout(ms))
	})
}

//export goRedoxLoaderClose
func goRedoxLoaderClose(h C.redox_loader) C.redox_status {
	return call("redox_loader_close", func() error {
		l, ok := loaders.take(uint64(h), (*redox.Loader).Cancel)
		if !ok {
			return stale(uint64(h))
		}
		return l.Close()
	})
}
