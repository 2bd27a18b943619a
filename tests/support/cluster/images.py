"""Cluster images to decide on: brokers, topics with given replicas, and a host in miniature."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from uuid import UUID

from msgspec.structs import replace

from penstock.controller.election import update_partition_states
from penstock.controller.image import ClusterImage
from penstock.controller.metadata import (
    Assignment,
    BrokerKey,
    BrokerRecord,
    Change,
    ControllerEpochRecord,
    Delete,
    Endpoint,
    PartitionRecord,
    Put,
    SecurityProtocol,
)
from penstock.controller.partition_state_machine import ElectionRules
from penstock.controller.placement import PlacementStart
from penstock.controller.topics import NewTopicRules, new_topic
from penstock.core.ids import TopicId, TopicPartition

CLEAN = ElectionRules(allows_unclean=lambda _topic: False)
UNCLEAN = ElectionRules(allows_unclean=lambda _topic: True)


def broker(broker_id: int, epoch: int = 1, rack: str | None = None) -> BrokerRecord:
    endpoint = Endpoint("PLAINTEXT", "localhost", 9092 + broker_id, SecurityProtocol.PLAINTEXT)
    return BrokerRecord(broker_id, (endpoint,), rack, 0, {}, epoch)


def image_of(*broker_ids: int, racks: Mapping[int, str] | None = None) -> ClusterImage:
    """These brokers are up; the controller's epoch is 7."""
    image = ClusterImage()
    image.apply([Put(ControllerEpochRecord(7))])
    image.apply(Put(broker(b, rack=(racks or {}).get(b))) for b in broker_ids)
    return image


def ids() -> Callable[[], TopicId]:
    """Topic ids, one after the other."""
    last = 0x1000

    def new_topic_id() -> TopicId:
        nonlocal last
        last += 1
        return UUID(int=last)

    return new_topic_id


def add_topic(
    image: ClusterImage,
    topic: str,
    *replicas: Sequence[int],
    topic_id: TopicId | None = None,
    configs: Mapping[str, str] | None = None,
) -> TopicId:
    """A topic with one partition for each list of replicas."""
    new_id = topic_id or UUID(int=0x10_0000 + len(image.topics))
    image.apply(new_topic(image, topic, new_id, [tuple(r) for r in replicas], configs or {}))
    return new_id


def new_topic_rules(
    num_partitions: int = 1, replication_factor: int = 1, first: int = 0
) -> NewTopicRules:
    start = PlacementStart(first, 0)
    return NewTopicRules(num_partitions, replication_factor, lambda _configs: None, ids(), start)


def state(image: ClusterImage, topic: str, partition: int = 0) -> PartitionRecord:
    return image.partitions[TopicPartition(topic, partition)]


def assignment(image: ClusterImage, topic: str, partition: int = 0) -> Assignment:
    return image.topics[topic].assignments[partition]


def set_state(
    image: ClusterImage, topic: str, leader: int, isr: Iterable[int], partition: int = 0
) -> None:
    """Puts a partition into a state without asking the controller."""
    current = state(image, topic, partition)
    image.apply([Put(replace(current, leader=leader, isr=tuple(isr)))])


def set_assignment(
    image: ClusterImage, topic: str, assignment: Assignment, partition: int = 0
) -> None:
    """Gives a partition replicas without asking the controller."""
    record = image.topics[topic]
    image.apply([Put(replace(record, assignments={**record.assignments, partition: assignment}))])


def check_committable(changes: Sequence[Change]) -> None:
    """No key twice: the changes are one atomic multi."""
    keys = [c.record.key if isinstance(c, Put) else c.key for c in changes]
    assert len(set(keys)) == len(keys), f"a key is changed twice: {keys}"


def broker_down(
    image: ClusterImage, broker_ids: Iterable[int], rules: ElectionRules
) -> list[Change]:
    """Returns the changes after the sessions of brokers have ended (R7)."""
    failed = [broker_id for broker_id in dict.fromkeys(broker_ids) if broker_id in image.brokers]
    live = image.brokers.keys() - set(failed)
    deletes: list[Change] = [Delete(BrokerKey(broker_id)) for broker_id in failed]
    return deletes + update_partition_states(image, live, rules)


def broker_up(image: ClusterImage, record: BrokerRecord, rules: ElectionRules) -> list[Change]:
    """Returns the changes after a broker has registered, for the first time or again.

    If it is registered already, the controller has not noticed the end of its last session.
    """
    live = image.brokers.keys() | {record.broker_id}
    registration: list[Change] = [Put(record)]
    return registration + update_partition_states(image, live, rules, restarted={record.broker_id})


def image_after(image: ClusterImage, changes: Iterable[Change] = ()) -> ClusterImage:
    """Returns a copy of an image that has applied these changes."""
    copied = ClusterImage()
    copied.apply(map(Put, image._records()))
    copied.apply(changes)
    return copied
