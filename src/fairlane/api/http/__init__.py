"""HTTP/1.1 and WebSocket: the protocols, headers, bodies and problem details."""
