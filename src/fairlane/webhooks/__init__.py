"""Telling whoever named a callback that a job has ended."""

from fairlane.webhooks.sender import WebhookSender
from fairlane.webhooks.signature import rotate_secret, secret_of
from fairlane.webhooks.ssrf import SsrfGuard

__all__ = ["SsrfGuard", "WebhookSender", "rotate_secret", "secret_of"]
