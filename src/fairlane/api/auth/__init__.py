"""Authentication and authorization: API keys, roles, ownership, brute force protection."""
