"""The HTTP API."""

from fairlane.api.app import App, create_app

__all__ = ["App", "create_app"]
