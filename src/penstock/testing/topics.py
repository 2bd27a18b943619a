"""Topics and their state by single requests, which need no client."""

import socket
import struct
from collections.abc import Iterable, Mapping
from typing import NamedTuple, TypeVar, cast

from penstock.core.errors import ErrorCode
from penstock.core.ids import TopicPartition
from penstock.protocol.fields import Message
from penstock.protocol.frames import decode_response, encode_request
from penstock.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from penstock.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from penstock.protocol.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse
from penstock.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from penstock.protocol.messages.metadata import MetadataRequest, MetadataResponse
from penstock.testing.errors import BrokerError

SECONDS = 20.0
_VERSION = 5
"""Of CreateTopics and DeleteTopics: the newest that identifies topics by name alone."""
_LATEST = -1
_LENGTH = struct.Struct(">i")

R = TypeVar("R", bound=Message)


class PartitionState(NamedTuple):
    """A partition as the metadata of one broker describes it."""

    leader: int | None
    replicas: tuple[int, ...]
    isr: tuple[int, ...]

    @property
    def is_in_sync(self) -> bool:
        return self.leader is not None and set(self.isr) == set(self.replicas)


class ClusterState(NamedTuple):
    """The metadata of one broker."""

    controller: int | None
    partitions: dict[TopicPartition, PartitionState]


class RetriableError(BrokerError):
    """The same request may succeed later, for example because the controller has moved."""


class TopicExistsError(BrokerError):
    """The topic exists, or is being deleted."""


def create_topic(
    address: tuple[str, int],
    name: str,
    partitions: int,
    config: Mapping[str, str],
    replicas: int = 1,
) -> None:
    """Creates a topic, and returns when its leaders can be written and read.

    The address is that of the controller; otherwise RetriableError is raised.
    """
    configs = [CreatableTopicConfig(*pair) for pair in config.items()]
    topic = CreatableTopic(name, partitions, replicas, configs=configs)
    request = CreateTopicsRequest([topic], int(SECONDS * 1000))
    (created,) = send_request(address, request, CreateTopicsResponse, _VERSION).topics
    _check(f"topic {name} was not created", created.error_code, created.error_message)


def delete_topic(address: tuple[str, int], name: str, *, missing_ok: bool) -> None:
    """Deletes a topic; the address is that of the controller, as in `create_topic`."""
    request = DeleteTopicsRequest(topic_names=[name], timeout_ms=int(SECONDS * 1000))
    (deleted,) = send_request(address, request, DeleteTopicsResponse, _VERSION).responses
    if deleted.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and missing_ok:
        return
    _check(f"topic {name} was not deleted", deleted.error_code, deleted.error_message)


def describe_cluster(address: tuple[str, int]) -> ClusterState:
    """Returns the controller and all partitions, as this broker knows them."""
    response = send_request(address, MetadataRequest(None, False), MetadataResponse, 9)
    partitions = {
        TopicPartition(topic.name or "", partition.partition_index): PartitionState(
            None if partition.leader_id < 0 else partition.leader_id,
            tuple(partition.replica_nodes),
            tuple(partition.isr_nodes),
        )
        for topic in response.topics
        for partition in topic.partitions
    }
    controller = response.controller_id
    return ClusterState(None if controller < 0 else controller, partitions)


def elect_preferred_leaders(address: tuple[str, int]) -> None:
    """Elects the first replica of each partition if it is in sync; the controller does it."""
    request = ElectLeadersRequest(topic_partitions=None, timeout_ms=int(SECONDS * 1000))
    response = send_request(address, request, ElectLeadersResponse, 1)
    _check("leaders were not elected", response.error_code, None)


def know_end_offsets(address: tuple[str, int], partitions: Iterable[TopicPartition]) -> bool:
    """Returns whether a broker that leads these partitions tells clients where they end.

    A leader that was just elected does not until its followers have fetched from it.
    """
    topics = [
        ListOffsetsTopic(name, [ListOffsetsPartition(number, timestamp=_LATEST)])
        for name, number in partitions
    ]
    request = ListOffsetsRequest(replica_id=-1, topics=topics)
    response = send_request(address, request, ListOffsetsResponse, 5)
    return all(
        partition.error_code == ErrorCode.NONE
        for topic in response.topics
        for partition in topic.partitions
    )


def _check(what: str, code: int, message: str | None) -> None:
    if code == ErrorCode.NOT_CONTROLLER:
        raise RetriableError(f"{what}: NOT_CONTROLLER: {message}")
    if code == ErrorCode.TOPIC_ALREADY_EXISTS:
        raise TopicExistsError(f"{what}: TOPIC_ALREADY_EXISTS: {message}")
    if code != ErrorCode.NONE:
        raise BrokerError(f"{what}: {ErrorCode(code).name}: {message}")


def send_request(
    address: tuple[str, int], request: Message, response_type: type[R], version: int
) -> R:
    """Returns the response to one request. Raises `BrokerError` if there is none."""
    try:
        with socket.create_connection(address, SECONDS) as connection:
            parts = encode_request(request, version, 1, "penstock.testing")
            connection.sendall(b"".join(cast("list[bytes]", parts)))
            with connection.makefile("rb") as stream:
                (length,) = _LENGTH.unpack(stream.read(_LENGTH.size))
                frame = stream.read(length)
    except (OSError, struct.error) as error:
        raise BrokerError(
            f"the broker did not respond to {type(request).__name__}: {error}"
        ) from None
    return decode_response(response_type, version, frame)[1]
