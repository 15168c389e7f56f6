"""Configuration of a process: load, validate, explain."""
