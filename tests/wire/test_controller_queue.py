"""Requests that wait for the controller: their number, and clients that leave meanwhile (X5)."""

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from penstock.controller.image import ClusterImage
from penstock.controller.result import ControllerResult
from penstock.core.errors import ErrorCode
from penstock.protocol.fields import Message, Struct
from penstock.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasRequestEntityData,
    AlterClientQuotasRequestEntryData,
)
from penstock.protocol.messages.alter_configs import AlterConfigsRequest, AlterConfigsResource
from penstock.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
)
from penstock.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
)
from penstock.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from penstock.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from penstock.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from penstock.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from penstock.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from penstock.protocol.messages.elect_leaders import ElectLeadersRequest
from penstock.protocol.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)
from penstock.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
)
from penstock.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from penstock.protocol.messages.update_features import UpdateFeaturesRequest
from tests.support.broker.in_process import RunningBroker, running_broker
from tests.support.coordinator.group_client import wait_until
from tests.support.protocol.admin import TOPIC, create_topic, produce
from tests.support.protocol.requests import batch_of, produce_request

LIMIT = 4
SETTINGS = {
    "controller.queue.max.requests": str(LIMIT),
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}
THROTTLED = ErrorCode.THROTTLING_QUOTA_EXCEEDED
REFUSALS: list[tuple[Message, int, ErrorCode]] = [
    (CreateTopicsRequest([CreatableTopic("new", 1, 1)]), 7, THROTTLED),
    (CreateTopicsRequest([CreatableTopic("new", 1, 1)]), 5, ErrorCode.NOT_CONTROLLER),
    (DeleteTopicsRequest([DeleteTopicState("t")]), 6, THROTTLED),
    (DeleteTopicsRequest(topic_names=["t"]), 4, ErrorCode.NOT_CONTROLLER),
    (CreatePartitionsRequest([CreatePartitionsTopic("t", 2)]), 3, THROTTLED),
    (AlterPartitionReassignmentsRequest(), 0, ErrorCode.NOT_CONTROLLER),
    (ListPartitionReassignmentsRequest(), 0, ErrorCode.NOT_CONTROLLER),
    (
        AlterUserScramCredentialsRequest([ScramCredentialDeletion("u", 1)]),
        0,
        ErrorCode.NOT_CONTROLLER,
    ),
    (UpdateFeaturesRequest(), 1, ErrorCode.NOT_CONTROLLER),
    (ElectLeadersRequest(), 2, ErrorCode.REQUEST_TIMED_OUT),
    (
        AlterConfigsRequest([AlterConfigsResource(TOPIC, "t")]),
        2,
        ErrorCode.REQUEST_TIMED_OUT,
    ),
    (
        IncrementalAlterConfigsRequest([IncrementalAlterConfigsResource(TOPIC, "t")]),
        1,
        ErrorCode.REQUEST_TIMED_OUT,
    ),
    (
        CreateAclsRequest([AclCreation(2, "t", 3, "User:u", "*", 3, 3)]),
        3,
        ErrorCode.REQUEST_TIMED_OUT,
    ),
    (
        DeleteAclsRequest([DeleteAclsFilter(1, None, 1, None, None, 1, 1)]),
        3,
        ErrorCode.REQUEST_TIMED_OUT,
    ),
    (
        AlterClientQuotasRequest(
            [AlterClientQuotasRequestEntryData([AlterClientQuotasRequestEntityData("user", "u")])]
        ),
        1,
        ErrorCode.REQUEST_TIMED_OUT,
    ),
]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    with running_broker(tmp_path_factory.mktemp("queue"), SETTINGS) as running:
        with running.connect() as client:
            assert create_topic(client, "t") is ErrorCode.NONE
        yield running


@contextmanager
def busy_controller(broker: RunningBroker) -> Iterator[None]:
    """A decision of the controller lasts as long as the block."""
    started, released = threading.Event(), threading.Event()

    def decide(_: ClusterImage) -> ControllerResult[None]:
        started.set()
        released.wait()
        return ControllerResult([], None)

    with ThreadPoolExecutor(1) as pool:
        decision = pool.submit(broker.wait, lambda running: running.controller.run(decide))
        try:
            started.wait()
            yield
        finally:
            released.set()
        decision.result()


def waiting_requests(broker: RunningBroker) -> int:
    return broker.call(lambda running: len(running.controller.queue))


def topics(broker: RunningBroker) -> set[str]:
    return broker.call(lambda running: set(running.image.topics))


def new_topic(name: str) -> CreateTopicsRequest:
    return CreateTopicsRequest([CreatableTopic(name, 1, 1)], timeout_ms=1000)


def errors_of(response: Struct) -> Iterator[tuple[int, str | None]]:
    """Yields the error codes of a response and of its elements, with their messages."""
    for name in response.__struct_fields__:
        value: Any = getattr(response, name)
        if name == "error_code" and value:
            yield value, getattr(response, "error_message", None)
        for element in value if isinstance(value, list) else ():
            if isinstance(element, Struct):
                yield from errors_of(element)


def test_requests_of_clients_that_left_are_dropped(broker: RunningBroker) -> None:
    """What such a client sent behind the request is handled, also without a response."""
    with busy_controller(broker):
        with broker.connect() as client, broker.connect() as pipelining_client:
            client.send(new_topic("left"), 7)
            pipelining_client.send(new_topic("left-too"), 7)
            wait_until(lambda: waiting_requests(broker) == 2)
            pipelining_client.send(produce_request("t", batch_of(b"behind"), acks=0), 9)
        wait_until(lambda: waiting_requests(broker) == 0)
        wait_until(
            lambda: (
                broker.call(lambda running: running.replicas.find("t", 0).log.log_end_offset) == 1
            )
        )
    with broker.connect() as another_client:
        assert create_topic(another_client, "later") is ErrorCode.NONE
    assert topics(broker) == {"t", "later"}


def test_a_decision_that_has_started_is_completed(broker: RunningBroker) -> None:
    started, released = threading.Event(), threading.Event()

    async def wait(_: object) -> Any:
        started.set()
        await asyncio.to_thread(released.wait)

        async def undo() -> None: ...

        return undo

    broker.call(lambda running: running.controller.requirements.append(wait))
    try:
        with broker.connect() as client:
            client.send(new_topic("started"), 7)
            assert started.wait(60)
        wait_until(lambda: broker.call(lambda running: running.controller.is_active))
    finally:
        released.set()
        broker.call(lambda running: running.controller.requirements.remove(wait))
    wait_until(lambda: "started" in topics(broker))


@pytest.mark.parametrize(("request_body", "version", "code"), REFUSALS)
def test_requests_beyond_the_limit_are_refused(
    broker: RunningBroker, request_body: Message, version: int, code: ErrorCode
) -> None:
    """A principal has half of the places. Other requests are served, and those that wait too."""
    waiting_clients = [broker.connect() for _ in range(LIMIT // 2)]
    with broker.connect() as client:
        with busy_controller(broker):
            for waiting_client in waiting_clients:
                waiting_client.send(ListPartitionReassignmentsRequest(), 0)
            wait_until(lambda: waiting_requests(broker) == LIMIT // 2)
            response = client.request(request_body, version)
            errors = list(errors_of(response))
            assert errors
            for error_code, message in errors:
                assert error_code == code
                assert message is None or "controller.queue.max.requests=4" in message
            assert (response.throttle_time_ms > 0) == (code is THROTTLED)
            with broker.connect() as another_client:
                produce(another_client, "t", b"served")
        for waiting_client in waiting_clients:
            response = waiting_client.receive(ListPartitionReassignmentsRequest(), 0)
            assert not list(errors_of(response))
            waiting_client.close()


def test_creations_of_topics_by_metadata_requests_are_limited(tmp_path: Path) -> None:
    clients = []
    with running_broker(tmp_path, {"controller.queue.max.requests": "2"}) as broker:
        with busy_controller(broker):
            for number in range(3):
                clients.append(broker.connect())
                body = MetadataRequest([MetadataRequestTopic(name=f"auto-{number}")])
                clients[-1].send(body, 12)
            response: Any = clients[2].receive(body, 12)
            assert response.topics[0].error_code == ErrorCode.LEADER_NOT_AVAILABLE
        for client in clients[:2]:
            response = client.receive(body, 12)
            assert not response.topics[0].error_code
        for client in clients:
            client.close()
