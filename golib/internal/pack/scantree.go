package pack

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"unicode/utf8"

	"github.com/redox-loader/redox/golib/internal/fault"
)

// TreeFile is one file of a tree: one sample.
type TreeFile struct {
	Path  string // below the root, with slashes; the sample's key
	Label int64  // of imagefolder
	size  int64
	mtime int64 // nanoseconds; it only tells whether the tree is the same as before
	wrong error // why it can be no sample, whatever is in it
}

// key is the path as text: bytes that are not UTF-8 are shown as \xff.
func (f *TreeFile) key() string { return text(f.Path) }

// check notes what is wrong with a file, by what the scan saw of it; info is nil if it saw nothing.
func (f *TreeFile) check(info os.FileInfo) {
	switch {
	case !utf8.ValidString(f.Path):
		f.wrong = fmt.Errorf("its name is not UTF-8: %w", syscall.EILSEQ)
	case info != nil && !info.Mode().IsRegular() && info.Mode()&fs.ModeSymlink == 0:
		f.wrong = fmt.Errorf("it is %s, not a file: %w", kindOf(info.Mode()), syscall.ENOTSUP)
	}
}

func kindOf(mode fs.FileMode) string {
	switch {
	case mode.IsDir():
		return "a directory"
	case mode&fs.ModeNamedPipe != 0:
		return "a pipe"
	case mode&fs.ModeSocket != 0:
		return "a socket"
	}
	return "a device"
}

// text makes a file name UTF-8, as manifests and messages have to be.
func text(name string) string {
	if utf8.ValidString(name) {
		return name
	}
	var b strings.Builder
	for i, r := range name {
		if _, n := utf8.DecodeRuneInString(name[i:]); r == utf8.RuneError && n == 1 {
			fmt.Fprintf(&b, "\\x%02x", name[i])
		} else {
			b.WriteRune(r)
		}
	}
	return b.String()
}

// imageExtensions are those that torchvision's ImageFolder takes, in lower case.
var imageExtensions = []string{".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp"}

func isImage(name string) bool {
	return slices.Contains(imageExtensions, strings.ToLower(filepath.Ext(name)))
}

// treeScan lists the files of a tree in the order of torchvision's ImageFolder, so that source numbers are its
// indices: by class, in it by directory, in it by name. Directories are listed in parallel.
type treeScan struct {
	root   string
	avoid  os.FileInfo // the directory being packed into, if it lies in the tree
	images bool
	atOnce chan struct{}
	wg     sync.WaitGroup

	mu   sync.Mutex
	dirs map[string][]TreeFile // by path below the root
	err  error
}

// scanTree lists a tree. For imagefolder the directories in the root are the classes.
func scanTree(root, dst, format string) (files []TreeFile, classes []string, err error) {
	s := &treeScan{root: root, images: format == "imagefolder", dirs: make(map[string][]TreeFile), atOnce: make(chan struct{}, 8)}
	s.avoid, _ = os.Stat(dst)
	top, err := os.ReadDir(root)
	if err != nil {
		return nil, nil, failed(err, "list", root)
	}
	if !s.images {
		s.list(".", nil)
		s.wg.Wait()
		return s.sorted(), nil, s.err
	}
	for _, e := range top {
		if info, err := os.Stat(filepath.Join(root, e.Name())); err == nil && info.IsDir() && !s.avoided(info) {
			classes = append(classes, e.Name())
		}
	}
	if len(classes) == 0 {
		return nil, nil, fault.New(fault.Invalid, "%s: no class directories in it", root).In(root)
	}
	for _, class := range classes {
		s.list(class, nil)
	}
	s.wg.Wait()
	return s.labelled(classes)
}

func (s *treeScan) avoided(info os.FileInfo) bool {
	return s.avoid != nil && os.SameFile(info, s.avoid)
}

// list lists a directory and, in parallel where there is room, those in it. above are the directories on the way: a
// link back to one of them is not followed.
func (s *treeScan) list(dir string, above []os.FileInfo) {
	work := func() {
		if err := s.listOne(dir, above); err != nil {
			s.mu.Lock()
			s.err = errors.Join(s.err, err)
			s.mu.Unlock()
		}
	}
	select {
	case s.atOnce <- struct{}{}:
		s.wg.Add(1)
		go func() {
			defer s.wg.Done()
			work()
			<-s.atOnce
		}()
	default:
		work()
	}
}

func (s *treeScan) listOne(dir string, above []os.FileInfo) error {
	path := filepath.Join(s.root, dir)
	self, err := os.Stat(path)
	if err != nil {
		return failed(err, "list", path)
	}
	if s.avoided(self) || slices.ContainsFunc(above, func(a os.FileInfo) bool { return os.SameFile(a, self) }) {
		return nil
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return failed(err, "list", path)
	}
	above = append(slices.Clip(above), self)
	var files []TreeFile
	for _, e := range entries {
		name := e.Name()
		if dir != "." {
			name = dir + "/" + name
		}
		info, err := e.Info()
		if err == nil && e.Type()&fs.ModeSymlink != 0 {
			if target, err := os.Stat(filepath.Join(s.root, name)); err == nil {
				info = target
			}
		}
		switch {
		case err != nil: // it vanished; reading will say so
			info = nil
		case info.IsDir():
			s.list(name, above)
			continue
		}
		if s.images && !isImage(name) {
			continue
		}
		f := TreeFile{Path: name}
		if info != nil {
			f.size, f.mtime = info.Size(), info.ModTime().UnixNano()
		}
		f.check(info)
		files = append(files, f)
	}
	s.mu.Lock()
	s.dirs[dir] = files
	s.mu.Unlock()
	return nil
}

// sorted joins the directories in the order of their paths.
func (s *treeScan) sorted() []TreeFile {
	dirs := make([]string, 0, len(s.dirs))
	for dir := range s.dirs {
		dirs = append(dirs, dir)
	}
	slices.SortFunc(dirs, func(a, b string) int {
		if a == "." || b == "." { // the root comes first
			return strings.Compare(strings.TrimPrefix(a, "."), strings.TrimPrefix(b, "."))
		}
		return strings.Compare(a, b)
	})
	var files []TreeFile
	for _, dir := range dirs {
		files = append(files, s.dirs[dir]...)
	}
	return files
}

// labelled puts the files of one class after those of the other: a-b sorts before a/b as a directory, but after as a
// class.
func (s *treeScan) labelled(classes []string) ([]TreeFile, []string, error) {
	if s.err != nil {
		return nil, nil, s.err
	}
	byClass := make(map[string][]TreeFile, len(classes))
	for _, f := range s.sorted() {
		class, _, _ := strings.Cut(f.Path, "/")
		byClass[class] = append(byClass[class], f)
	}
	var files []TreeFile
	var empty []string
	for label, class := range classes {
		for _, f := range byClass[class] {
			f.Label = int64(label)
			files = append(files, f)
		}
		if len(byClass[class]) == 0 {
			empty = append(empty, class)
		}
	}
	if len(empty) > 0 {
		return nil, nil, fault.New(fault.Invalid, "%s: no images in the classes %q (images end in %s)", s.root, empty,
			strings.Join(imageExtensions, " ")).In(s.root)
	}
	for i := range classes {
		classes[i] = text(classes[i]) // labels are places in it, so it stays although none of its files can be read
	}
	return files, classes, nil
}

// treeHash is the identity of a tree: names, sizes and times, not contents.
func treeHash(given, format string, files []TreeFile) string {
	h := sha256.New()
	b := append(append(append([]byte(given), 0), format...), 0)
	for _, f := range files {
		b = append(append(b, f.Path...), 0)
		for _, v := range [...]int64{f.size, f.mtime, f.Label} {
			b = binary.LittleEndian.AppendUint64(b, uint64(v))
		}
		if len(b) > 64<<10 {
			h.Write(b)
			b = b[:0]
		}
	}
	h.Write(b)
	return hex.EncodeToString(h.Sum(nil))
}
