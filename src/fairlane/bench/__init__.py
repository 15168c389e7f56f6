"""Benchmarks: throughput and latency of Fairlane on this machine."""
