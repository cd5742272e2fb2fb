package redox_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	redox "github.com/redox-loader/redox/golib"
	"github.com/redox-loader/redox/golib/internal/fault"
)

// every takes options in each function that has them; what it returns is closed.
func every(t *testing.T, d *redox.Dataset, resolve redox.Resolver) map[string]func(options string) error {
	return map[string]func(string) error{
		"loader": func(o string) error {
			l, err := d.NewLoader([]byte(o), resolve)
			if err == nil {
				l.Close()
			}
			return err
		},
		"mesh": func(o string) error {
			m, err := d.NewMesh([]byte(o), resolve)
			if err == nil {
				m.Close()
			}
			return err
		},
		"simulate": func(o string) error {
			_, err := d.Simulate([]byte(o), resolve)
			return err
		},
		"indices": func(o string) error {
			_, err := d.PlanIndices([]byte(o), 0, resolve)
			return err
		},
		"writer": func(o string) error {
			w, err := redox.NewWriter(t.TempDir()+"/w", []byte(o))
			if err == nil {
				w.Abort()
			}
			return err
		},
		"pack": func(o string) error {
			j, err := redox.NewJob("pack_files", []byte(o))
			if err == nil {
				j.Close()
			}
			return err
		},
		"verify": func(o string) error {
			j, err := redox.NewJob("verify", []byte(o))
			if err == nil {
				j.Close()
			}
			return err
		},
		"engine": func(o string) error { return redox.Serve(-1, []byte(o)) },
	}
}

// A name counts as it is written, and once.
func TestOptionsAreNamedExactlyAndOnce(t *testing.T) {
	functions := every(t, open(t), redox.Resolver{})
	for _, c := range []struct{ function, options, names string }{
		{"loader", `{"Batch_Size": 1}`, `"Batch_Size"`}, {"loader", `{"batch_size": 1, "SHUFFLE": false}`, `"SHUFFLE"`},
		{"loader", `{"batch_size": 1, "batch_size": 2}`, "batch_size"}, {"loader", `{"batch_size": 1, "share": null, "sh\u0061re": null}`, "share"},
		{"mesh", `{"batch_size": 1, "Listen": "x"}`, `"Listen"`}, {"mesh", `{"batch_size": 1, "listen": "", "listen": ""}`, "listen"},
		{"simulate", `{"Batch_size": 1}`, `"Batch_size"`}, {"indices", `{"batch_size": 1, "epoch": 0, "epoch": 1}`, "epoch"},
		{"writer", `{"fields": {"x": "int"}, "Overwrite": true}`, `"Overwrite"`},
		{"writer", `{"fields": {"x": "int"}, "fields": {"y": "int"}}`, "fields"},
		{"writer", `{"fields": [{"name": "x", "Kind": "int"}]}`, `"Kind"`},
		{"writer", `{"fields": [{"name": "x", "kind": "int", "kind": "str"}]}`, "kind"},
		{"writer", `{"fields": {"x": "int", "x": "str"}}`, `"x"`},
		{"pack", `{"src": "/nowhere", "dst": "/nowhere", "SRC": "/"}`, `"SRC"`}, {"verify", `{"path": "/nowhere", "path": "/"}`, "path"},
		{"engine", `{"Log_file": 1}`, `"Log_file"`},
	} {
		err := functions[c.function](c.options)
		if !errors.Is(err, fault.Of(fault.Invalid)) || !strings.Contains(err.Error(), c.names) {
			t.Errorf("%s %s: %v", c.function, c.options, err)
		}
	}
	if l := loader(t, open(t), ` {"batch_size": 1, "mesh": null, "share": null, "subset_handle": null} `); l.Close() != nil {
		t.Error("null must be as good as nothing")
	}
}

// 0 is no handle, whatever the resolver would say, and a made-up one is noticed even where nothing would use it.
func TestHandlesAmongOptions(t *testing.T) {
	d := open(t)
	l := loader(t, d, `{"batch_size": 1}`)
	s, err := d.NewSubset([]int64{1, 2})
	if err != nil {
		t.Fatal(err)
	}
	functions := every(t, d, redox.Resolver{
		Subset: func(h uint64) (*redox.Subset, bool) { return s, h < 7 },
		Loader: func(h uint64) (*redox.Loader, bool) { return l, h < 7 },
		Mesh:   func(h uint64) (*redox.Mesh, bool) { return nil, h < 7 },
	})
	for _, function := range []string{"loader", "simulate", "mesh"} {
		for _, option := range []string{"subset_handle", "share", "mesh"} {
			for _, handle := range []int{0, 7} {
				err := functions[function](fmt.Sprintf(`{"batch_size": 1, "%s": %d}`, option, handle))
				if !errors.Is(err, fault.Of(fault.BadHandle)) || !strings.Contains(err.Error(), option) {
					t.Errorf("%s, %s=%d: %v", function, option, handle, err)
				}
			}
		}
	}
	if err := functions["loader"](`{"batch_size": 1, "subset_handle": 1, "share": 1, "mesh": 1}`); err != nil {
		t.Error(err)
	}
}
