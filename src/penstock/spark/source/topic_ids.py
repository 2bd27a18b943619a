"""Topic ids as Kafka prints them: 22 characters of URL-safe base64."""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from uuid import UUID


def to_text(topic_id: UUID | None) -> str:
    """Returns an empty text for None, which brokers without topic ids report."""
    if topic_id is None:
        return ""
    return urlsafe_b64encode(topic_id.bytes).decode().rstrip("=")


def from_text(text: str) -> UUID | None:
    """Returns None for an empty text; raises ValueError if the text is no id."""
    if not text:
        return None
    return UUID(bytes=urlsafe_b64decode(text + "=="))
