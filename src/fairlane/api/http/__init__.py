"""HTTP/1.1 and WebSocket on the wire: the protocol, headers, bodies, problem details."""
