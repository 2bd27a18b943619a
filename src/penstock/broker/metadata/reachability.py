"""Which brokers the clients of a listener can connect to, and why they cannot."""

from collections.abc import Container, Iterable

from penstock.controller.image import ClusterImage
from penstock.core.errors import ErrorCode
from penstock.core.ids import TopicPartition


def reachable_brokers(image: ClusterImage, listener: str) -> Container[int]:
    """Returns the ids of the brokers that clients of a listener can connect to."""
    return {broker.broker_id for broker, _ in image.broker_endpoints(listener)}


def offline_replicas(
    image: ClusterImage, key: TopicPartition, replicas: Iterable[int], reachable: Container[int]
) -> list[int]:
    """Returns the replicas that clients cannot use: on brokers that are not reachable, or in failed
    log directories."""
    offline = image.offline_replicas.get(key, ()) if image.offline_replicas else ()
    return [r for r in replicas if r not in reachable or r in offline]


def leader_error(image: ClusterImage, leader: int) -> ErrorCode:
    """Returns why clients cannot connect to a leader: it is down, or lacks their listener."""
    is_up = leader in image.brokers
    return ErrorCode.LISTENER_NOT_FOUND if is_up else ErrorCode.LEADER_NOT_AVAILABLE
