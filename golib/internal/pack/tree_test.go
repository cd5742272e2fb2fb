package pack_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"github.com/redox-loader/redox/golib/internal/fault"
	"github.com/redox-loader/redox/golib/internal/pack"
	"github.com/redox-loader/redox/golib/internal/pack/packtest"
)

// tree writes files below a new directory.
func tree(t testing.TB, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, data := range files {
		path := filepath.Join(root, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(data), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// Source numbers, classes and which files count must be those of torchvision's ImageFolder; "a/b-c" and "a/b/c" is where
// sorting by path and by directory differ.
func TestImageFolderIsTorchvisions(t *testing.T) {
	root := tree(t, map[string]string{
		"b/2.png": "2", "b/10.PNG": "10", "b/x.txt": "no image", "a/b/c.png": "c", "a/b-c/d.png": "d", "a/z.png": "z",
		"ä/1.png": "", "notes.png": "not in a class", "a-b/1.png": "ab",
	})
	if err := os.Symlink(filepath.Join(root, "a"), filepath.Join(root, "a", "loop")); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(root, "out.redox") // inside the tree: no class
	var seen uint64
	res, err := pack.Tree(context.Background(), dir, pack.TreeOptions{
		Root: root, Format: "imagefolder", Progress: func(done, total uint64) { seen = done },
	})
	if err != nil {
		t.Fatal(err)
	}
	samples, sources := packtest.Read(t, dir)
	var got []string
	for i, s := range samples {
		got = append(got, fmt.Sprintf("%d %s=%s %d", sources[i], s.Key, s.Vals[0].Data, s.Vals[1].Data[0]))
	}
	want := []string{"0 a/z.png=z 0", "1 a/b/c.png=c 0", "2 a/b-c/d.png=d 0", "3 a-b/1.png=ab 1", "4 b/10.PNG=10 2", "5 b/2.png=2 2", "6 ä/1.png= 3"}
	// torchvision: os.walk sorts "…/a/b" before "…/a/b-c", being a prefix.
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	m := res.Manifest
	if !slices.Equal(m.Classes, []string{"a", "a-b", "b", "ä"}) || m.ClassCounts["2"] != 2 || m.Schema.Fields[0].Kind != "png" || seen != 7 {
		t.Errorf("classes %q, counts %v, kind %s, progress %d", m.Classes, m.ClassCounts, m.Schema.Fields[0].Kind, seen)
	}
	again, err := pack.Tree(context.Background(), dir, pack.TreeOptions{Root: root, Format: "imagefolder"})
	if err != nil || !again.Existing {
		t.Errorf("second time: existing %v, %v", again.Existing, err)
	}
}

// Tree and Writer shuffle alike, so a source gives one order whichever way it is packed.
func TestFilesShuffleAsWriterDoes(t *testing.T) {
	files := make(map[string]string)
	for i := range 500 {
		files[fmt.Sprintf("d%d/%03d", i/100, i%100)] = fmt.Sprint(i)
	}
	root, a, b := tree(t, files), t.TempDir(), t.TempDir()
	if _, err := pack.Tree(context.Background(), a, pack.TreeOptions{Root: root, Format: "files", Options: pack.Options{Shuffle: true, Seed: 3}}); err != nil {
		t.Fatal(err)
	}
	samples, sources := packtest.Read(t, a)
	packtest.BuildWith(t, b, pack.Options{Schema: numbered(t), Shuffle: true, Seed: 3}, packtest.Numbered(500, 10, 2)...)
	if _, other := packtest.Read(t, b); !slices.Equal(sources, other) {
		t.Error("orders differ")
	}
	for _, s := range samples {
		if files[s.Key] != string(s.Vals[1].Data) || s.Key != string(s.Vals[0].Data) {
			t.Fatalf("%q is %q", s.Key, s.Vals[1].Data)
		}
	}
}

func TestUnreadableFiles(t *testing.T) {
	root := tree(t, map[string]string{"a/1.png": "1", "a/3.png": "3"})
	bad := filepath.Join(root, "a", "2.png")
	if err := os.Symlink("nowhere", bad); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	_, err := pack.Tree(context.Background(), dir, pack.TreeOptions{Root: root, Format: "imagefolder"})
	var e *fault.Error
	if !errors.As(err, &e) || e.Kind != fault.IO || e.Path != bad || e.Errno != syscall.ENOENT {
		t.Errorf("got %#v", err)
	}
	res, err := pack.Tree(context.Background(), dir, pack.TreeOptions{Root: root, Format: "imagefolder", OnError: "skip"})
	if err != nil || len(res.Skipped) != 1 || res.Skipped[0].Key != "a/2.png" || res.Skipped[0].Source != 1 || res.Manifest.Samples != 2 {
		t.Errorf("%+v, %v", res, err)
	}
	if _, sources := packtest.Read(t, dir); !slices.Equal(sources, []uint64{0, 2}) {
		t.Errorf("sources %v", sources)
	}
}

// Content of a text kind is looked at.
func TestFilesThatAreNoText(t *testing.T) {
	root := tree(t, map[string]string{"a": "1", "b": "{"})
	options := pack.TreeOptions{Root: root, Format: "files"}
	options.Schema = packtest.Schema(t, "path", "str", "data", "json")
	_, err := pack.Tree(context.Background(), t.TempDir(), options)
	var e *fault.Error
	if !errors.As(err, &e) || e.Kind != fault.Invalid || e.Path != filepath.Join(root, "b") {
		t.Errorf("got %#v", err)
	}
	options.OnError = "skip"
	dir := t.TempDir()
	res, err := pack.Tree(context.Background(), dir, options)
	if err != nil || len(res.Skipped) != 1 || res.Manifest.Samples != 1 {
		t.Errorf("%+v, %v", res, err)
	}
	if samples, _ := packtest.Read(t, dir); len(samples) != 1 || string(samples[0].Vals[1].Data) != "1" {
		t.Errorf("%+v", samples)
	}
}

// What can be no sample is unreadable, and told under a name that is text.
func TestNamesAndFilesOfOtherKinds(t *testing.T) {
	root := tree(t, map[string]string{"a/1.png": "1", "b\xfe/1.png": "2", "c/ü\xff.png": "3"})
	if err := syscall.Mkfifo(filepath.Join(root, "a", "2.png"), 0o666); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	_, err := pack.Tree(context.Background(), dir, pack.TreeOptions{Root: root, Format: "imagefolder"})
	var e *fault.Error
	if !errors.As(err, &e) || e.Kind != fault.IO || e.Path != filepath.Join(root, "a", "2.png") || e.Errno != syscall.ENOTSUP {
		t.Errorf("got %#v", err)
	}
	res, err := pack.Tree(context.Background(), dir, pack.TreeOptions{Root: root, Format: "imagefolder", OnError: "skip"})
	if err != nil {
		t.Fatal(err)
	}
	var keys []string
	for _, s := range res.Skipped {
		keys = append(keys, s.Key)
	}
	if want := []string{"a/2.png", `b\xfe/1.png`, `c/ü\xff.png`}; !slices.Equal(keys, want) || res.Manifest.Samples != 1 {
		t.Errorf("%d samples, skipped %q, want %q", res.Manifest.Samples, keys, want)
	}
	if want := []string{"a", `b\xfe`, "c"}; !slices.Equal(res.Manifest.Classes, want) {
		t.Errorf("classes %q, want %q", res.Manifest.Classes, want)
	}
}
