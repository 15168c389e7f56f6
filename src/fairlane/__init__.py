"""A priority job queue and gateway for scarce AI capacity."""

__version__ = "0.1.0"
