module github.com/redox-loader/redox/benchmarks/harness/slowfs

go 1.26.0

require (
	github.com/hanwen/go-fuse/v2 v2.12.1
	golang.org/x/sys v0.49.0
)
