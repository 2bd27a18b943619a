"""Conversion of responses to the results of admin calls."""

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol, TypeVar

from penstock.client.admin.advice import response_error
from penstock.core.errors import KafkaError
from penstock.core.ids import TopicPartition
from penstock.security.acl import AclOperation

NOT_REQUESTED = -(2**31)
"""The value of authorized operations that were not requested."""

V = TypeVar("V")


P = TypeVar("P", bound="_Partition")
P_co = TypeVar("P_co", bound="_Partition", covariant=True)


class _Partition(Protocol):
    partition_index: int


class _Topic(Protocol[P_co]):
    name: str

    @property
    def partitions(self) -> Sequence[P_co]: ...


def partition_results(
    topics: Iterable[_Topic[P]], value_of: Callable[[P], V], *, subject: str = "partition"
) -> dict[TopicPartition, V | KafkaError]:
    """Returns the value of each partition in a response, or its error, about the `subject`."""
    results: dict[TopicPartition, V | KafkaError] = {}
    for topic in topics:
        for data in topic.partitions:
            partition = TopicPartition(topic.name, data.partition_index)
            error = response_error(data, f"{subject} {partition}")
            results[partition] = value_of(data) if error is None else error
    return results


def no_value(partition: object) -> None:
    """Returns the value of a partition in calls that return nothing."""


def group_by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """Returns the partition numbers of each topic, in their order."""
    topics: dict[str, list[int]] = {}
    for topic, partition in partitions:
        topics.setdefault(topic, []).append(partition)
    return topics


def number_or_none(number: int) -> int | None:
    """Returns None for a negative number, which stands for none in the protocol."""
    return None if number < 0 else number


def operations_of(bits: int) -> frozenset[AclOperation] | None:
    """Returns the operations of a bit field; None if they were not requested."""
    if bits == NOT_REQUESTED:
        return None
    return frozenset(
        operation for operation in AclOperation if operation and bits & (1 << operation)
    )
