"""The nouns. Frozen, without behaviour that reads the world."""
