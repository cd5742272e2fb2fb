//go:build race

package pack_test

const race = true
