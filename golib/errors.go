package redox

import "github.com/redox-loader/redox/golib/internal/fault"

// Error is what every function here returns for what a user can meet; its kind is the redox_status.
type Error = fault.Error
