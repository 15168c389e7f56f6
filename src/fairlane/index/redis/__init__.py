from fairlane.index.redis.redis import RedisIndex

__all__ = ["RedisIndex"]
