module github.com/redox-loader/redox

go 1.26.0

require (
	github.com/pierrec/lz4/v4 v4.1.33
	github.com/quic-go/quic-go v0.65.0
	github.com/valyala/bytebufferpool v1.0.0
	golang.org/x/sys v0.49.0
)

require (
	golang.org/x/crypto v0.54.0 // indirect
	golang.org/x/net v0.56.0 // indirect
)
