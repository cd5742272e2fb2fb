package redox_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/redox-loader/redox/"

// mayImport says which of our packages each package may import. A package that is not here fails. The order keeps the
// pure parts pure: what decides the order of samples cannot reach a file, a clock or a socket.
var mayImport = map[string][]string{
	"capi":                    {"golib"},
	"golib":                   {"attach", "node", "peer", "exchange", "pack", "plan", "chunk", "store", "buffer", "resident", "fault"},
	"golib/internal/attach":   {"node", "fault"},
	"golib/internal/node":     {"exchange", "plan", "resident", "buffer", "chunk", "store", "fault"},
	"golib/internal/exchange": {},
	"golib/internal/peer":     {"wire", "exchange", "fault"},
	"golib/internal/wire":     {"fault"},
	"golib/internal/resident": {"store", "chunk", "buffer", "fault"},
	"golib/internal/pack":     {"chunk", "perm", "fault"},
	"golib/internal/plan":     {"perm", "fault"},
	"golib/internal/chunk":    {"fault"},
	"golib/internal/store":    {"fault"},
	"golib/internal/buffer":   {"fault"},
	"golib/internal/perm":     {"fault"},
	"golib/internal/fault":    {},
}

// allowed adds to the table what holds for all: a package P/Ptest helps the tests of P, and may import it and what it
// may import.
func allowed(pkg string) (list []string, known bool) {
	if parent, name := path.Split(pkg); strings.HasSuffix(name, "test") {
		parent = path.Clean(parent)
		list, known = mayImport[parent]
		return append([]string{path.Base(parent)}, list...), known
	}
	list, known = mayImport[pkg]
	return list, known
}

// onlyIn says which packages may import something from outside.
var onlyIn = map[string][]string{
	"C":                          {"capi"},
	"unsafe":                     {"capi", "golib/internal/buffer", "golib/internal/node", "golib/internal/store", "golib/internal/store/storetest"},
	"github.com/quic-go/quic-go": {"golib/internal/peer"},
	"github.com/pierrec/lz4/v4":  {"golib/internal/chunk"},
}

// clockless packages give the same answer whenever they are asked.
var clockless = []string{"golib/internal/plan", "golib/internal/perm", "golib/internal/chunk", "golib/internal/wire"}

// source is one parsed Go file that is not a test.
type source struct {
	pkg  string // its folder, relative to the module's root
	file string
	ast  *ast.File
}

func sources(t *testing.T) []source {
	t.Helper()
	var all []source
	for _, top := range []string{"golib", "capi"} {
		err := filepath.WalkDir(filepath.Join("..", top), func(p string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(p, ".go") || strings.HasSuffix(p, "_test.go") {
				return err
			}
			f, err := parser.ParseFile(token.NewFileSet(), p, nil, parser.SkipObjectResolution)
			rel := filepath.ToSlash(strings.TrimPrefix(p, ".."+string(filepath.Separator)))
			all = append(all, source{path.Dir(rel), rel, f})
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return all
}

func (s source) imports() []string {
	var paths []string
	for _, spec := range s.ast.Imports {
		p, _ := strconv.Unquote(spec.Path.Value) // the parser has checked it
		paths = append(paths, p)
	}
	return paths
}

func TestImportOrder(t *testing.T) {
	for _, s := range sources(t) {
		list, known := allowed(s.pkg)
		if !known {
			t.Errorf("%s: package %s is not in the table of imports", s.file, s.pkg)
			continue
		}
		for _, imported := range s.imports() {
			ours, is := strings.CutPrefix(imported, module)
			name := strings.TrimPrefix(ours, "golib/internal/")
			if is && (!slices.Contains(list, name) || strings.HasSuffix(name, "test")) {
				t.Errorf("%s must not import %s", s.file, ours)
			}
		}
	}
}

func TestOutsidersStayInTheirPackage(t *testing.T) {
	for _, s := range sources(t) {
		for _, imported := range s.imports() {
			for outsider, homes := range onlyIn {
				if (imported == outsider || strings.HasPrefix(imported, outsider+"/")) && !slices.Contains(homes, s.pkg) {
					t.Errorf("%s must not import %s: only %v may", s.file, imported, homes)
				}
			}
		}
	}
}

func TestPurePackagesHaveNoClock(t *testing.T) {
	for _, s := range sources(t) {
		if !slices.Contains(clockless, s.pkg) {
			continue
		}
		ast.Inspect(s.ast, func(n ast.Node) bool {
			if sel, ok := n.(*ast.SelectorExpr); ok {
				if x, ok := sel.X.(*ast.Ident); ok && x.Name == "time" && slices.Contains([]string{"Now", "Since", "Until"}, sel.Sel.Name) {
					t.Errorf("%s uses time.%s", s.file, sel.Sel.Name)
				}
			}
			return true
		})
	}
}

// The tables name what exists: a package that was renamed must not leave a hole.
func TestTablesNamePackages(t *testing.T) {
	out, err := exec.Command("go", "list", "../...").CombinedOutput()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, out)
	}
	for pkg := range mayImport {
		if !slices.Contains(strings.Fields(string(out)), module+pkg) {
			t.Errorf("the table has %s, which does not exist", pkg)
		}
	}
}
