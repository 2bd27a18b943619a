"""Commits whose responses get lost (C5)."""

from collections.abc import Iterator

import pytest

from penstock.client.consumer.consumer import Consumer
from penstock.core.errors import KafkaError
from penstock.protocol.api_key import ApiKey
from penstock.testing.broker import Broker
from tests.support.client.own_consumer import at, consumer_of, until

GROUP = "group"
TOPIC = "topic"


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        broker.create_topic(TOPIC)
        yield broker


def member(broker: Broker, **options: bool) -> Consumer:
    consumer = consumer_of(
        broker.bootstrap_servers,
        group_id=GROUP,
        enable_auto_commit=options.get("commits", False),
        auto_commit_interval_ms=20,
        retry_backoff_ms=100,
    )
    consumer.subscribe([TOPIC])
    until(lambda: bool(consumer.assignment()), lambda: consumer.poll(0.1))
    return consumer


def committed(consumer: Consumer) -> int | None:
    results = consumer.committed([at(TOPIC)])[at(TOPIC)]
    return None if results is None else results.offset


def test_an_async_commit_is_not_retried_after_a_later_one(broker: Broker) -> None:
    """The response is lost; a retry would overwrite the later commit."""
    errors: list[KafkaError | None] = []
    with member(broker) as consumer:
        with broker.losing_replies(ApiKey.OFFSET_COMMIT, times=1) as lost:
            consumer.commit_async({at(TOPIC): 5}, lambda offsets, error: errors.append(error))
            until(lambda: lost.count == 1, lambda: None)
            consumer.commit({at(TOPIC): 7})
            until(lambda: bool(errors), lambda: consumer.poll(0.05))
        assert committed(consumer) == 7
    (error,) = errors
    assert error is not None
    assert error.code.retriable


def test_automatic_commits_continue_after_a_failure(broker: Broker) -> None:
    with member(broker, commits=True) as consumer:
        with broker.losing_replies(ApiKey.OFFSET_COMMIT, times=1) as lost:
            consumer.seek(at(TOPIC), 0)
            until(lambda: lost.count == 1, lambda: consumer.poll(0.02))
        with consumer_of(broker.bootstrap_servers, group_id=GROUP) as second:
            second.assign([at(TOPIC)])
            until(lambda: committed(second) == 0, lambda: consumer.poll(0.02))
