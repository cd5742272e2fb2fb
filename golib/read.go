package redox

import (
	"github.com/redox-loader/redox/golib/internal/fault"
)

// Read fills the caller's memory with the samples of these stored numbers, in this order, neighbours by one request.
func (d *Dataset) Read(numbers []int64, b *Batch) error {
	r, err := d.singles()
	if err != nil {
		return err
	}
	defer r.Close()
	return r.Read(numbers, nil, b, defaultTimeout)
}

// ReadStatsJSON is what Read did so far, with the names of redox_stats.
func (d *Dataset) ReadStatsJSON() ([]byte, error) {
	r, err := d.singles()
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return encode(statsOf(r.Stats()))
}

// Origin tells where samples came from: their numbers in the source and their keys.
func (d *Dataset) Origin(numbers []int64) (sources []int64, keys []string, err error) {
	r, err := d.singles()
	if err != nil {
		return nil, nil, err
	}
	defer r.Close()
	sources, keys = make([]int64, len(numbers)), make([]string, len(numbers))
	for i, number := range numbers {
		source, key, err := r.Origin(number, defaultTimeout)
		if err != nil {
			return nil, nil, err
		}
		sources[i], keys[i] = int64(source), key
	}
	return sources, keys, nil
}

// FindKey returns the stored number of the first sample with a key. There is no index of keys: it reads the tables of
// all chunks.
func (d *Dataset) FindKey(key string) (int64, error) {
	r, err := d.singles()
	if err != nil {
		return 0, err
	}
	defer r.Close()
	number, found, err := r.Find(key, defaultTimeout)
	if err == nil && !found {
		err = fault.New(fault.Invalid, "no sample has the key %q", key)
	}
	return number, err
}
