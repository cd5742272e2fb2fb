package redox

import "os"

// Getenv reads the environment. The C library puts its own here: Go sees what the process began with, and trainers
// change their environment (os.environ in Python) before they load it, or later.
var Getenv = os.Getenv
