package redox

import "github.com/redox-loader/redox/golib/internal/fault"

// Error is what every failure of this package is or wraps, as far as a user can do something about it. Its kind is the
// redox_status of include/redox.h.
type Error = fault.Error
