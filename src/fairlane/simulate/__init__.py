"""What would users have waited? The engine's own order of service under a virtual clock."""
