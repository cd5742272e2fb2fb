package pack

import (
	"os"
	"path/filepath"

	"github.com/redox-loader/redox/golib/internal/fault"
)

// failed wraps a file operation's error with the file's name.
func failed(err error, verb, path string) error {
	return fault.Wrap(fault.IO, err, "%s %s", verb, path).In(path)
}

// replace writes a file so that it is there whole or not at all, even if the machine stops.
func replace(path string, data []byte) error {
	tmp := path + ".tmp"
	f, err := os.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o666)
	if err != nil {
		return failed(err, "create", tmp)
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	if closed := f.Close(); err == nil {
		err = closed
	}
	if err != nil {
		_ = os.Remove(tmp)
		return failed(err, "write", path)
	}
	if err := os.Rename(tmp, path); err != nil {
		return failed(err, "publish", path)
	}
	return syncDir(filepath.Dir(path))
}

// syncDir makes the names in a directory durable.
func syncDir(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return failed(err, "open", path)
	}
	err = d.Sync()
	if closed := d.Close(); err == nil {
		err = closed
	}
	if err != nil {
		return failed(err, "sync", path)
	}
	return nil
}
