"""Telling whoever named a callback that a job has ended."""

from fairlane.webhooks.egress import Egress
from fairlane.webhooks.sender import WebhookSender
from fairlane.webhooks.signature import rotate_secret, secret_of

__all__ = ["Egress", "WebhookSender", "rotate_secret", "secret_of"]
