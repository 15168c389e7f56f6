"""Services that only pretend, over real HTTP: for the demo and for tests."""
