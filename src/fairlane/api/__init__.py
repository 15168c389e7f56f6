"""The HTTP API: an ASGI application with its routes, schemas, middleware and server."""
