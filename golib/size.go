package redox

import (
	"math"
	"regexp"
	"strconv"
	"strings"

	"github.com/redox-loader/redox/golib/internal/fault"
)

// sizeText is a size as people write it: powers of 1024, the b may be left out. Python's sizes.py reads the same.
var sizeText = regexp.MustCompile(`(?i)^\s*(\d+(?:\.\d*)?|\.\d+)\s*([kmgtp]?)b?\s*$`)

var units = map[string]int{"": 0, "k": 10, "m": 20, "g": 30, "t": 40, "p": 50}

// sizeOf reads an option in bytes: a number from least, or like "512kb", "8mb", "1.5gb"; 0 if it is absent or "auto".
func sizeOf(option string, value any, least float64) (int64, error) {
	size := math.NaN()
	switch v := value.(type) {
	case nil:
		return 0, nil
	case float64:
		size = v
	case string:
		if v == "auto" {
			return 0, nil
		}
		if found := sizeText.FindStringSubmatch(v); found != nil {
			size, _ = strconv.ParseFloat(found[1], 64)
			size = math.Trunc(math.Ldexp(size, units[strings.ToLower(found[2])]))
		}
	}
	if !(size >= least && size < 1<<62) || size != math.Trunc(size) {
		return 0, fault.New(fault.Invalid, `%s=%v: expected bytes, a size like "512kb", "8mb", "1.5gb", or "auto"`, option, value)
	}
	return int64(size), nil
}
