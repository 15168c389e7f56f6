from fairlane.index.memory.memory import MemoryIndex

__all__ = ["MemoryIndex"]
