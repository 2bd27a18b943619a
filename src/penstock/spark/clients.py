"""Penstock's clients, created from Kafka's dotted settings (Spark's options without `kafka.`)."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.client.admin.admin import Admin
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


def _options(
    kind: type[Any], client: Mapping[str, str], more: Mapping[str, object]
) -> dict[str, Any]:
    from penstock.client.settings import from_properties

    known, _ = from_properties(kind, client)
    return {**known, **more}
