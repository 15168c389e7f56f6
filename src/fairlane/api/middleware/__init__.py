"""The middleware in front of every route: one ASGI wrapper, one file for each concern."""

from fairlane.api.middleware.guard import GuardMiddleware

__all__ = ["GuardMiddleware"]
