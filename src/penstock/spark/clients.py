"""Penstock's clients, created from Kafka's dotted settings (Spark's options without `kafka.`)."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from penstock.core.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from penstock.client.admin.admin import Admin
    from penstock.client.admin.model_topics import TopicDescription
    from penstock.client.consumer.consumer import Consumer
    from penstock.client.producer.producer import Producer


def new_admin(client: Mapping[str, str], **more: object) -> "Admin":
    """Returns an admin client with these settings; the options in `more` take precedence.

    Settings that only other clients or Java have are ignored.
    """
    from penstock.client.admin.admin import Admin
    from penstock.client.settings import AdminOptions

    return Admin(**_options(AdminOptions, client, more))


def new_consumer(client: Mapping[str, str], **more: object) -> "Consumer":
    """Like `new_admin`, for a consumer."""
    from penstock.client.consumer.consumer import Consumer
    from penstock.client.settings import ConsumerOptions

    return Consumer(**_options(ConsumerOptions, client, more))


def new_producer(client: Mapping[str, str], **more: object) -> "Producer":
    """Like `new_admin`, for a producer."""
    from penstock.client.producer.producer import Producer
    from penstock.client.settings import ProducerOptions

    return Producer(**_options(ProducerOptions, client, more))


class LazyAdmin:
    """An admin client that connects when it is first used. Used by one thread, which closes it."""

    def __init__(self, client: Mapping[str, str]) -> None:
        self._client = client
        self._admin: Admin | None = None

    def get(self) -> "Admin":
        if self._admin is None:
            self._admin = new_admin(self._client)
        return self._admin

    def close(self) -> None:
        """Closes the connections. The next use connects again."""
        if self._admin is not None:
            self._admin.close()
            self._admin = None


def describe_topic(client: "Mapping[str, str] | Admin", topic: str) -> "TopicDescription | None":
    """Returns None if the topic does not exist; unlike a producer, it never creates one.

    Raises `KafkaError`. Uses an admin client, or creates one with the settings of `client`.
    """
    if isinstance(client, Mapping):
        with new_admin(client) as admin:
            return describe_topic(admin, topic)
    try:
        return client.describe_topics([topic])[topic]
    except KafkaError as error:
        if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise
        return None


def _options(
    kind: type[Any], client: Mapping[str, str], more: Mapping[str, object]
) -> dict[str, Any]:
    from penstock.client.settings import from_properties

    settings, _ = from_properties(kind, client)
    return {**settings, **more}
