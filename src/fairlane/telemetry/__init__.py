"""What a process counts, for Prometheus."""
