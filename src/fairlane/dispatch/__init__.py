"""The dispatcher: calls services over HTTP on behalf of jobs."""

from fairlane.dispatch.dispatcher import Dispatcher

__all__ = ["Dispatcher"]
