"""Webhooks: signed HTTP requests that tell the callback URL of a job that the job has ended."""

from fairlane.webhooks.sender import WebhookSender
from fairlane.webhooks.signature import rotate_secret, secret_of
from fairlane.webhooks.ssrf import SsrfGuard

__all__ = ["SsrfGuard", "WebhookSender", "rotate_secret", "secret_of"]
