"""Key names in Redis: the prefix of every key and channel. `lua/include/keys.lua` adds the rest."""

KEY_PREFIX = "{fairlane}:"
"""The braces are a hash tag: Redis Cluster keeps all keys on one server."""
