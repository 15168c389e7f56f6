"""A discrete-event simulator: how long users would have waited, with the engine's order of service
and a virtual clock."""
