"""Domain model: frozen dataclasses without I/O."""
