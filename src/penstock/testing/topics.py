"""Creating and deleting topics with single requests, which needs no client."""

import socket
import struct
from collections.abc import Mapping
from typing import TypeVar, cast

from penstock.core.errors import ErrorCode
from penstock.protocol.fields import Message
from penstock.protocol.frames import decode_response, encode_request
from penstock.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from penstock.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from penstock.testing.errors import BrokerError

SECONDS = 20.0
_VERSION = 5  # of both requests: the newest that identifies topics by name alone
_LENGTH = struct.Struct(">i")

R = TypeVar("R", bound=Message)


def create_topic(
    address: tuple[str, int], name: str, partitions: int, config: Mapping[str, str]
) -> None:
    """Creates a topic, and returns when it can be written and read."""
    configs = [CreatableTopicConfig(*pair) for pair in config.items()]
    topic = CreatableTopic(name, partitions, 1, configs=configs)
    request = CreateTopicsRequest([topic], int(SECONDS * 1000))
    (created,) = _request(address, request, CreateTopicsResponse).topics
    _check(f"topic {name} was not created", created.error_code, created.error_message)


def delete_topic(address: tuple[str, int], name: str, *, missing_ok: bool) -> None:
    request = DeleteTopicsRequest(topic_names=[name], timeout_ms=int(SECONDS * 1000))
    (deleted,) = _request(address, request, DeleteTopicsResponse).responses
    if deleted.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and missing_ok:
        return
    _check(f"topic {name} was not deleted", deleted.error_code, deleted.error_message)


def _check(what: str, code: int, message: str | None) -> None:
    if code != ErrorCode.NONE:
        raise BrokerError(f"{what}: {ErrorCode(code).name}: {message}")


def _request(address: tuple[str, int], request: Message, response_type: type[R]) -> R:
    try:
        with socket.create_connection(address, SECONDS) as connection:
            parts = encode_request(request, _VERSION, 1, "penstock.testing")
            connection.sendall(b"".join(cast("list[bytes]", parts)))
            with connection.makefile("rb") as stream:
                (length,) = _LENGTH.unpack(stream.read(_LENGTH.size))
                frame = stream.read(length)
    except (OSError, struct.error) as error:
        raise BrokerError(
            f"the broker did not respond to {type(request).__name__}: {error}"
        ) from None
    return decode_response(response_type, _VERSION, frame)[1]
