// Package peer connects the nodes of a job over QUIC and carries samples between them. Mesh is the exchange that package
// node works with (exchange.Exchange): one UDP socket, one connection for each pair of nodes, one lane for each rank's
// pass over an epoch. It is the only package that imports quic-go.
//
// What it does not do: it knows no plan, reads no storage, and never asks a peer for a sample. Owners push what package
// node gives them, as far as receivers give credit; what does not come in time is for package node to read elsewhere.
//
// How to read it: config.go and identity.go say what a node is made of; meet.go and greet.go how two nodes come to trust
// each other; session.go is the life of one connection, with control.go, push.go and receive.go for its three kinds of
// traffic; lane.go (incoming) and outlet.go (outgoing) are what package node sees. docs/protocol.md has the bytes and the
// rules, docs/security.md says what is protected against whom.
package peer
