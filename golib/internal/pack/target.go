package pack

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/redox-loader/redox/golib/internal/chunk"
	"github.com/redox-loader/redox/golib/internal/fault"
)

// target is the directory that becomes the data set, held by a lock while it is being packed.
type target struct {
	dir     string
	lock    *os.File
	journal *journal
	before  progress // of an interrupted run that this one goes on with
}

type dirFiles string

func (d dirFiles) ReadFile(name string) ([]byte, error) {
	return os.ReadFile(filepath.Join(string(d), filepath.FromSlash(name)))
}

// openTarget prepares dir for a run with this identity ("": can't be resumed). A complete data set of the same
// identity is returned instead of a target.
func openTarget(dir, identity string, o *Options) (*target, *chunk.Manifest, error) {
	if m := published(dir, identity); m != nil && !o.Overwrite {
		removeLeftovers(dir)
		return nil, m, nil
	}
	if err := os.MkdirAll(dir, 0o777); err != nil {
		if errors.Is(err, syscall.ENOTDIR) || errors.Is(err, syscall.EEXIST) {
			return nil, nil, occupied(dir, "is not a directory")
		}
		return nil, nil, failed(err, "create", dir)
	}
	if err := checkOurs(dir, o.Overwrite); err != nil { // before anything is made in a directory that may be somebody's
		return nil, nil, err
	}
	lock, err := lockDir(dir)
	if err != nil {
		return nil, nil, err
	}
	t := &target{dir: dir, lock: lock}
	m, err := t.settle(identity, o)
	if err != nil || m != nil {
		t.release()
		return nil, m, err
	}
	return t, nil, nil
}

// published returns the manifest of a data set with this identity.
func published(dir, identity string) *chunk.Manifest {
	m, err := chunk.LoadManifest(dirFiles(dir))
	if err != nil || identity == "" || m.Source != identity {
		return nil
	}
	return &m
}

// checkOurs refuses a directory with something in it that no packing run has left there.
func checkOurs(dir string, overwrite bool) error {
	names, err := os.ReadDir(dir)
	if err != nil {
		return failed(err, "list", dir)
	}
	if overwrite || len(names) == 0 {
		return nil
	}
	if _, err := os.Stat(filepath.Join(dir, chunk.WorkDir)); err == nil {
		return nil // settle looks closer
	}
	if _, err := chunk.LoadManifest(dirFiles(dir)); err == nil {
		return exists(dir, "is a data set of another source or of other options")
	}
	return exists(dir, "is not empty and not a data set")
}

func exists(dir, what string) error {
	return occupied(dir, what+" (overwrite replaces it)")
}

func occupied(dir, what string) error {
	e := fault.New(fault.Invalid, "%s: %s", dir, what).In(dir)
	e.Errno = syscall.EEXIST
	return e
}

// lockDir takes the lock of a directory. The file vanishes when its holder publishes, so a lock counts only if its file
// is still the one of that name.
func lockDir(dir string) (*os.File, error) {
	work := filepath.Join(dir, chunk.WorkDir)
	path := filepath.Join(work, "lock")
	for {
		if err := os.MkdirAll(work, 0o777); err != nil {
			return nil, failed(err, "create", work)
		}
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o666)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, failed(err, "create", path)
		}
		if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
			_ = f.Close()
			if errors.Is(err, unix.EWOULDBLOCK) {
				e := fault.New(fault.IO, "%s is being packed by another process", dir).In(dir)
				e.Errno = syscall.EBUSY
				return nil, e
			}
			return nil, failed(err, "lock", path)
		}
		held, err1 := f.Stat()
		named, err2 := os.Stat(path)
		if err1 == nil && err2 == nil && os.SameFile(held, named) {
			return f, nil
		}
		_ = f.Close()
	}
}

// settle decides, with the lock held, between returning what is there, going on, starting over and refusing.
func (t *target) settle(identity string, o *Options) (*chunk.Manifest, error) {
	if m := published(t.dir, identity); m != nil && !o.Overwrite {
		return m, t.removeWork()
	}
	lines, good, err := readJournal(t.journalPath())
	if err != nil && !o.Overwrite {
		return nil, err
	}
	before, ours := replay(lines)
	_, missing := os.Stat(filepath.Join(t.dir, chunk.ManifestName))
	switch {
	case ours && missing != nil && identity != "" && before.identity == identity && o.Resume:
		t.before = before
		if t.journal, err = openJournal(t.journalPath(), good); err != nil {
			return nil, err
		}
		return nil, t.prepare()
	case o.Overwrite:
	case missing == nil:
		return nil, exists(t.dir, "is a data set of another source or of other options")
	case ours && before.identity != "" && before.identity != identity:
		return nil, exists(t.dir, "is half-packed from another source or with other options")
	case !ours && t.foreign():
		return nil, exists(t.dir, "is not empty and not a data set")
	}
	if err := t.wipe(); err != nil {
		return nil, err
	}
	if t.journal, err = openJournal(t.journalPath(), 0); err != nil {
		return nil, err
	}
	if err := t.journal.note(line{Begin: &begin{Version: journalVersion, Identity: identity}}); err != nil {
		return nil, err
	}
	return nil, t.prepare()
}

// foreign: something lies beside the work directory although no journal says that we put it there.
func (t *target) foreign() bool {
	names, err := os.ReadDir(t.dir)
	return err != nil || len(names) > 1
}

func (t *target) journalPath() string {
	return filepath.Join(t.dir, filepath.FromSlash(chunk.JournalName))
}
func (t *target) spillDir() string { return filepath.Join(t.dir, chunk.WorkDir, "spill") }

func (t *target) prepare() error {
	for _, dir := range []string{filepath.Join(t.dir, chunk.ShardDir), t.spillDir()} {
		if err := os.MkdirAll(dir, 0o777); err != nil {
			return failed(err, "create", dir)
		}
	}
	for _, dir := range []string{filepath.Dir(t.journalPath()), t.dir} {
		if err := syncDir(dir); err != nil {
			return err
		}
	}
	_ = syncDir(filepath.Dir(t.dir)) // of our own name; the directory above may not be ours to open
	return nil
}

// wipe removes the names of the format and nothing else, the manifest first, so that no half data set ever opens.
func (t *target) wipe() error {
	for _, name := range []string{chunk.ManifestName, chunk.ManifestName + ".tmp", chunk.IndexName, chunk.IndexName + ".tmp"} {
		path := filepath.Join(t.dir, name)
		if err := os.Remove(path); err != nil && !os.IsNotExist(err) {
			return failed(err, "remove", path)
		}
		if name == chunk.ManifestName {
			if err := syncDir(t.dir); err != nil {
				return err
			}
		}
	}
	shards, _ := filepath.Glob(filepath.Join(t.dir, chunk.ShardDir, "*.rdx"))
	for _, path := range append(shards, t.journalPath(), t.spillDir()) {
		if err := os.RemoveAll(path); err != nil {
			return failed(err, "remove", path)
		}
	}
	_ = os.Remove(filepath.Join(t.dir, chunk.ShardDir)) // stays if somebody else's files are in it
	return nil
}

// removeUnfinished removes shards that the journal doesn't know: cut off, or of a run that noted nothing.
func (t *target) removeUnfinished(finished []chunk.Shard) error {
	paths, _ := filepath.Glob(filepath.Join(t.dir, chunk.ShardDir, "*.rdx"))
	for _, path := range paths {
		name := chunk.ShardDir + "/" + filepath.Base(path)
		if slices.ContainsFunc(finished, func(s chunk.Shard) bool { return s.Name == name }) {
			continue
		}
		if err := os.Remove(path); err != nil {
			return failed(err, "remove", path)
		}
	}
	return nil
}

// publish makes the data set visible: index, then manifest, then the work files go.
func (t *target) publish(index, manifest []byte) error {
	if err := syncDir(filepath.Join(t.dir, chunk.ShardDir)); err != nil {
		return err
	}
	if err := replace(filepath.Join(t.dir, chunk.IndexName), index); err != nil {
		return err
	}
	if err := replace(filepath.Join(t.dir, chunk.ManifestName), manifest); err != nil {
		return err
	}
	return t.removeWork()
}

// removeWork removes the work directory; the lock file in it last, as another process may wait to see what became of it.
func (t *target) removeWork() error {
	if t.journal != nil {
		t.journal.close()
	}
	for _, path := range []string{t.spillDir(), t.journalPath()} {
		if err := os.RemoveAll(path); err != nil {
			return failed(err, "remove", path)
		}
	}
	work := filepath.Join(t.dir, chunk.WorkDir)
	_ = os.Remove(filepath.Join(work, "lock"))
	_ = os.Remove(work) // not RemoveAll: the next process's new lock may be in it
	t.release()
	return nil
}

// discard removes everything of the run.
func (t *target) discard() error {
	err := t.wipe()
	if removed := t.removeWork(); err == nil {
		err = removed
	}
	_ = os.Remove(t.dir) // if we made it, or it was empty
	return err
}

// release gives up the lock and leaves everything as it is.
func (t *target) release() {
	if t.journal != nil {
		t.journal.close()
	}
	_ = t.lock.Close()
}

// removeLeftovers cleans up after a run that was killed between publishing and removing its work directory.
func removeLeftovers(dir string) {
	if _, err := os.Stat(filepath.Join(dir, chunk.WorkDir)); err != nil {
		return
	}
	if lock, err := lockDir(dir); err == nil {
		_ = (&target{dir: dir, lock: lock}).removeWork()
	}
}
