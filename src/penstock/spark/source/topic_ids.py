"""Topic ids as text: as Kafka prints them, 22 characters of URL-safe base64."""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from uuid import UUID


def to_text(topic_id: UUID | None) -> str:
    """ "" where the broker has no ids."""
    if topic_id is None:
        return ""
    return urlsafe_b64encode(topic_id.bytes).decode().rstrip("=")


def from_text(text: str) -> UUID | None:
    """None of ""; ValueError where it is no id."""
    if not text:
        return None
    return UUID(bytes=urlsafe_b64decode(text + "=="))
