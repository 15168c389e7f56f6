"""Overload protection: load shedding when more is submitted than this process can write."""
