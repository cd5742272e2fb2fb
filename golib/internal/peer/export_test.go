package peer

// OpenSocket is for tests that compare with plain QUIC over the same socket.
var OpenSocket = openSocket
