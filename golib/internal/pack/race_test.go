//go:build race

package pack_test

// race: the race detector's own memory makes measuring memory pointless.
const race = true
