"""The soak: constant load for a long time, while memory, descriptors and sizes are
sampled."""
