"""Pure decision functions: no clock, no randomness, no I/O. Every input is an argument."""
