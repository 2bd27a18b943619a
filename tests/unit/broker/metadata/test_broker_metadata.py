"""Changes are published in parts; a large topic appears when it is complete."""

import asyncio
from collections.abc import Sequence

from penstock.broker.metadata.broker_metadata import BrokerMetadata
from penstock.broker.pacer import Pacer
from penstock.controller.image import ClusterImage
from penstock.controller.metadata import Change, Put, TopicRecord
from penstock.controller.topics import new_topic
from penstock.core.ids import TopicId
from tests.support.cluster.images import image_of

PARTITIONS = 1050


def published(metadata: BrokerMetadata, changes: Sequence[Change]) -> list[tuple[int, bool]]:
    """Publishes changes; returns their number in each part, and whether all topics are complete."""
    parts: list[tuple[int, bool]] = []
    image = metadata.image

    def listen(part: Sequence[Change]) -> None:
        complete = all(
            len(image.partitions_of(topic)) == len(record.assignments)
            for topic, record in image.topics.items()
        )
        parts.append((len(part), complete))

    metadata.listeners = [listen]
    asyncio.run(metadata.publish(changes))
    return parts


def new_metadata() -> BrokerMetadata:
    return BrokerMetadata(ClusterImage(), Pacer())


def test_a_large_topic_is_published_in_parts_and_appears_with_the_last() -> None:
    controller = image_of(0)
    changes = [
        *new_topic(controller, "small", TopicId(int=1), [(0,)] * 3, {}),
        *new_topic(controller, "large", TopicId(int=2), [(0,)] * PARTITIONS, {}),
        *new_topic(controller, "last", TopicId(int=3), [(0,)] * 2, {}),
    ]
    metadata = new_metadata()
    parts = published(metadata, changes)
    assert sum(size for size, _ in parts) == len(changes)
    assert max(size for size, _ in parts) <= 200
    assert all(is_complete for _, is_complete in parts)
    assert sorted(metadata.image.topics) == ["large", "last", "small"]
    assert len(metadata.image.partitions_of("large")) == PARTITIONS


def test_new_partitions_appear_with_their_states() -> None:
    controller = image_of(0)
    metadata = new_metadata()
    replicas: list[tuple[int, ...]] = [(0,) for _ in range(2 * PARTITIONS)]
    topic, *states = new_topic(controller, "t", TopicId(int=2), replicas, {})
    assert isinstance(topic, Put)
    assert isinstance(topic.record, TopicRecord)
    first = dict(list(topic.record.assignments.items())[:PARTITIONS])
    smaller = TopicRecord("t", TopicId(int=2), first)
    published(metadata, [Put(smaller), *states[:PARTITIONS]])
    parts = published(metadata, [topic, *states[PARTITIONS:]])
    assert all(is_complete for _, is_complete in parts)
    assert len(metadata.image.partitions_of("t")) == 2 * PARTITIONS
