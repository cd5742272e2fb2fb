package redox

import (
	"context"

	"github.com/redox-loader/redox/golib/internal/pack"
)

// verifyDataset is the job "verify".
func verifyDataset(optionsJSON []byte, p *progress) (func(context.Context) (any, error), error) {
	var o struct {
		Path   string `json:"path"`
		Repair bool   `json:"repair"`
	}
	if err := decode(optionsJSON, &o); err != nil {
		return nil, err
	}
	dir, err := localDir(o.Path)
	if err != nil {
		return nil, err
	}
	p.unit = "bytes"
	return func(ctx context.Context) (any, error) {
		return pack.Verify(ctx, dir, o.Repair, func(done, total uint64) { p.set(int64(done), int64(total)) })
	}, nil
}
