"""DeleteTopics (20): topics are deleted, by name or by id.

Versions 0 to 6, flexible from 4; Kafka 4 starts at 1.
"""

from typing import Annotated
from uuid import UUID

from penstock.protocol.api_key import ApiKey
from penstock.protocol.fields import (
    ZERO_UUID,
    Int16,
    Int32,
    Message,
    Struct,
    request,
    response,
    wire,
)


class DeleteTopicState(Struct):
    name: str | None = None
    topic_id: UUID = ZERO_UUID


class DeleteTopicsRequest(Message):
    INFO = request(ApiKey.DELETE_TOPICS, versions="0-6", flexible="4+")

    topics: Annotated[list[DeleteTopicState], wire("6+")] = []
    topic_names: Annotated[list[str], wire("0-5", ignorable=True)] = []
    timeout_ms: Int32 = 0


class DeletableTopicResult(Struct):
    name: Annotated[str | None, wire(nullable="6+")] = ""
    topic_id: Annotated[UUID, wire("6+", ignorable=True)] = ZERO_UUID
    error_code: Int16 = 0
    error_message: Annotated[str | None, wire("5+", ignorable=True)] = None


class DeleteTopicsResponse(Message):
    INFO = response(ApiKey.DELETE_TOPICS, versions="0-6", flexible="4+")

    throttle_time_ms: Annotated[Int32, wire("1+", ignorable=True)] = 0
    responses: list[DeletableTopicResult] = []
