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
	datasets = newTable[*redox.Dataset](1)
	subsets  = newTable[*redox.Subset](2)
)

//export goRedoxOpen
func goRedoxOpen(path, optionsJSON *C.char, abi C.uint32_t, out *C.redox_dataset) C.redox_status {
	return call("redox_open", func() error {
		if abi != C.REDOX_ABI_VERSION {
			return &mistake{C.REDOX_EVERSION, versionMessage(uint32(abi))}
		}
		p, err := required(path, "path")
		if err != nil {
			return err
		}
		if err := result(out, "out"); err != nil {
			return err
		}
		d, err := redox.Open(p, options(optionsJSON))
		if err != nil {
			return err
		}
		return opened(datasets, d, out, func(d *redox.Dataset) { d.Close() })
	})
}

//export goRedoxInfo
func goRedoxInfo(ds C.redox_dataset, buf *C.char, capacity C.size_t, need *C.size_t) C.redox_status {
	return with("redox_info", datasets, uint64(ds), func(d *redox.Dataset) error {
		info, err := d.InfoJSON()
		if err != nil {
			return err
		}
		return give(info, buf, capacity, need)
	})
}

//export goRedoxReadStats
func goRedoxReadStats(ds C.redox_dataset, buf *C.char, capacity C.size_t, need *C.size_t) C.redox_status {
	return with("redox_read_stats", datasets, uint64(ds), func(d *redox.Dataset) error {
		stats, err := d.ReadStatsJSON()
		if err != nil {
			return err
		}
		return give(stats, buf, capacity, need)
	})
}

//export goRedoxRead
func goRedoxRead(ds C.redox_dataset, stored *C.int64_t, n C.size_t, batch *C.redox_batch) C.redox_status {
	return with("redox_read", datasets, uint64(ds), func(d *redox.Dataset) error {
		list, err := numbers(stored, n, "numbers")
		if err != nil {
			return err
		}
		b, err := decodeBatch(batch)
		if err != nil {
			return err
		}
		defer encodeBatch(batch, b)
		return d.Read(list, b)
	})
}

//export goRedoxOrigin
func goRedoxOrigin(ds C.redox_dataset, stored *C.int64_t, n C.size_t, sources *C.int64_t, keys *C.char,
	capacity C.size_t, need *C.size_t) C.redox_status {
	return with("redox_origin", datasets, uint64(ds), func(d *redox.Dataset) error {
		list, err := numbers(stored, n, "numbers")
		if err != nil {
			return err
		}
		to, err := optional((*int64)(unsafe.Pointer(sources)), uint64(n), "sources")
		if err != nil {
			return err
		}
		from, names, err := d.Origin(list)
		if err != nil {
			return err
		}
		if keys != nil || need != nil {
			if err := giveKeys(names, keys, capacity, need); err != nil {
				return err
			}
		}
		copy(to, from)
		return nil
	})
}

// giveKeys copies keys, each with its NUL. Without a buffer it only says how much room they need.
func giveKeys(keys []string, buf *C.char, capacity C.size_t, need *C.size_t) error {
	n := uint64(0)
	for _, k := range keys {
		n += uint64(len(k)) + 1
	}
	if need != nil {
		*need = C.size_t(n)
	}
	if buf == nil {
		return nil
	}
	if uint64(capacity) < n {
		return tooSmall("keys has %d bytes, %d are needed", capacity, n)
	}
	dst, err := view((*byte)(unsafe.Pointer(buf)), n, "keys")
	if err != nil {
		return err
	}
	for _, k := range keys {
		copy(dst, k)
		dst[len(k)] = 0
		dst = dst[len(k)+1:]
	}
	return nil
}

//export goRedoxFindKey
func goRedoxFindKey(ds C.redox_dataset, key *C.char, number *C.int64_t) C.redox_status {
	return with("redox_find_key", datasets, uint64(ds), func(d *redox.Dataset) error {
		k, err := required(key, "key")
		if err != nil {
			return err
		}
		if err := result(number, "number"); err != nil {
			return err
		}
		n, err := d.FindKey(k)
		if err != nil {
			return err
		}
		*number = C.int64_t(n)
		return nil
	})
}

//export goRedoxPlanIndices
func goRedoxPlanIndices(ds C.redox_dataset, optionsJSON *C.char, step C.uint64_t, out *C.int64_t,
	capacity C.size_t, need *C.size_t) C.redox_status {
	return with("redox_plan_indices", datasets, uint64(ds), func(d *redox.Dataset) error {
		var refs references
		defer refs.done()
		indices, err := d.PlanIndices(options(optionsJSON), uint64(step), refs.resolver())
		if err != nil {
			return err
		}
		if need != nil {
			*need = C.size_t(len(indices))
		}
		if uint64(capacity) < uint64(len(indices)) {
			return tooSmall("out has %d entries, %d are needed", capacity, len(indices))
		}
		dst, err := view((*int64)(unsafe.Pointer(out)), uint64(len(indices)), "out")
		if err != nil {
			return err
		}
		copy(dst, indices)
		return nil
	})
}

//export goRedoxSimulate
func goRedoxSimulate(ds C.redox_dataset, optionsJSON, buf *C.char, capacity C.size_t, need *C.size_t) C.redox_status {
	return with("redox_simulate", datasets, uint64(ds), func(d *redox.Dataset) error {
		var refs references
		defer refs.done()
		report, err := d.Simulate(options(optionsJSON), refs.resolver())
		if err != nil {
			return err
		}
		return give(report, buf, capacity, need)
	})
}

//export goRedoxSubsetNew
func goRedoxSubsetNew(ds C.redox_dataset, stored *C.int64_t, n C.size_t, out *C.redox_subset) C.redox_status {
	return with("redox_subset_new", datasets, uint64(ds), func(d *redox.Dataset) error {
		list, err := numbers(stored, n, "numbers")
		if err != nil {
			return err
		}
		if err := result(out, "out"); err != nil {
			return err
		}
		s, err := d.NewSubset(list)
		if err != nil {
			return err
		}
		return opened(subsets, s, out, func(*redox.Subset) {})
	})
}

//export goRedoxSubsetClose
func goRedoxSubsetClose(subset C.redox_subset) C.redox_status {
	return call("redox_subset_close", func() error {
		if _, ok := subsets.take(uint64(subset), nil); !ok {
			return stale(uint64(subset))
		}
		return nil
	})
}

//export goRedoxClose
func goRedoxClose(ds C.redox_dataset) C.redox_status {
	return call("redox_close", func() error {
		d, ok := datasets.take(uint64(ds), nil)
		if !ok {
			return stale(uint64(ds))
		}
		return d.Close()
	})
}
