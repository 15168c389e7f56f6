"""Settings of a process: read, checked, explained."""
