"""Decisions. Pure: no clock, no chance, no I/O; everything a decision needs is an argument."""
