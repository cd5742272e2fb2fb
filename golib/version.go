package redox

// version is the release; setup.py reads it from here, so that there is one place to change it.
const version = "0.1.0"

// Version returns the release of the library.
func Version() string { return version }
