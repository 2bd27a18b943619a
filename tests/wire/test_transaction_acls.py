"""Permissions that transactional requests need (P4, X3)."""

from collections.abc import Iterator
from typing import Any

import pytest

from penstock.core.errors import ErrorCode
from penstock.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from penstock.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from penstock.protocol.messages.describe_transactions import DescribeTransactionsRequest
from penstock.protocol.messages.end_txn import EndTxnRequest
from penstock.protocol.messages.find_coordinator import FindCoordinatorRequest
from penstock.protocol.messages.init_producer_id import InitProducerIdRequest
from penstock.protocol.messages.list_transactions import ListTransactionsRequest
from penstock.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from penstock.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from penstock.security.acl import AclOperation, AclPermission, ResourceType
from tests.support.broker.faults import watching
from tests.support.broker.in_process import RunningBroker, WireClient, running_broker
from tests.support.broker.logins import AUTHORIZER, SASL_SETTINGS, logged_in
from tests.support.coordinator.transaction_client import (
    Generation,
    TxnProducer,
    described,
    produce_request,
    wait_for_state,
)
from tests.support.protocol.admin import allow
from tests.support.protocol.requests import batch_of, make_topic

SETTINGS = {
    **SASL_SETTINGS,
    "authorizer.class.name": AUTHORIZER,
    "super.users": "User:admin",
    "transaction.state.log.num.partitions": "2",
}
ANN = "User:ann"
NONE = ErrorCode.NONE
NO_ID = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
NO_TOPIC = ErrorCode.TOPIC_AUTHORIZATION_FAILED
NO_GROUP = ErrorCode.GROUP_AUTHORIZATION_FAILED
NO_CLUSTER = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
ID = ResourceType.TRANSACTIONAL_ID


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    """A broker on which ann may write with some ids to some topics."""
    directory = tmp_path_factory.mktemp("acls")
    with watching(), running_broker(directory, SETTINGS) as broker:
        with logged_in(broker, "admin") as admin:
            for topic in ("open", "secret"):
                make_topic(admin, topic, 2)
            allow(admin, ANN, AclOperation.WRITE, ID, "writes")
            allow(admin, ANN, AclOperation.DESCRIBE, ID, "describes")
            allow(admin, ANN, AclOperation.WRITE, ResourceType.TOPIC, "open")
            allow(admin, ANN, AclOperation.READ, ResourceType.TOPIC, "open")
            allow(admin, ANN, AclOperation.READ, ResourceType.GROUP, "readers")
            for name in ("writes", "describes", "hidden"):
                TxnProducer.started(admin, name, Generation.V1)
            assert admin.request(FindCoordinatorRequest("readers"), 2).error_code == 0
        yield broker


@pytest.fixture
def ann(secured: RunningBroker) -> Iterator[WireClient]:
    with logged_in(secured, "ann") as client:
        yield client


@pytest.fixture
def admin(secured: RunningBroker) -> Iterator[WireClient]:
    with logged_in(secured, "admin") as client:
        yield client


def test_find_coordinator_needs_describe(ann: WireClient) -> None:
    """WRITE implies DESCRIBE."""
    for name, code in (("writes", NONE), ("describes", NONE), ("hidden", NO_ID)):
        assert ErrorCode(ann.request(FindCoordinatorRequest(name, 1), 3).error_code) is code
    request = FindCoordinatorRequest("", 1, ["hidden", "writes"])
    codes = [
        ErrorCode(coordinator.error_code) for coordinator in ann.request(request, 4).coordinators
    ]
    assert codes == [NO_ID, NONE]


def test_init_producer_id_needs_write(ann: WireClient) -> None:
    for name, code in (("writes", NONE), ("describes", NO_ID), ("hidden", NO_ID), ("new", NO_ID)):
        for version in (0, 5):
            response = ann.request(InitProducerIdRequest(name, 1000), version)
            assert ErrorCode(response.error_code) is code
            if code:
                assert (response.producer_id, response.producer_epoch) == (-1, -1)


def test_end_txn_needs_write(ann: WireClient) -> None:
    for name, code in (
        ("writes", ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        ("describes", NO_ID),
        ("hidden", NO_ID),
    ):
        for version in (1, 5):
            response = ann.request(EndTxnRequest(name, 999, 0, True), version)
            assert ErrorCode(response.error_code) is code


@pytest.mark.parametrize("version", range(4))
def test_adding_partitions_needs_write_on_id_and_topics(ann: WireClient, version: int) -> None:
    """WRITE on the transactional id and on every topic."""
    producer = TxnProducer.started(ann, "writes", Generation.V1)

    def add(name: str, *topics: str) -> list[ErrorCode]:
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=name,
            v3_and_below_producer_id=producer.producer_id,
            v3_and_below_producer_epoch=producer.epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(topic, [0]) for topic in topics],
        )
        results = ann.request(request, version).results_by_topic_v3_and_below
        return [ErrorCode(item.results_by_partition[0].partition_error_code) for item in results]

    assert add("describes", "open", "secret") == [NO_ID, NO_ID]
    assert add("writes", "open", "secret") == [ErrorCode.OPERATION_NOT_ATTEMPTED, NO_TOPIC]
    assert add("writes", "hidden-and-absent") == [NO_TOPIC]
    assert add("writes", "open") == [NONE]
    assert producer.end(commit=False) is NONE


@pytest.mark.parametrize("version", [4, 5])
def test_several_transactions_need_cluster_action(
    ann: WireClient, admin: WireClient, version: int
) -> None:
    """CLUSTER_ACTION is sufficient for any topic."""
    topics = [AddPartitionsToTxnTopic("secret", [0])]
    request = AddPartitionsToTxnRequest(
        [AddPartitionsToTxnTransaction("hidden", 999, 0, True, topics)]
    )
    response = ann.request(request, version)
    assert ErrorCode(response.error_code) is NO_CLUSTER
    assert response.results_by_transaction == []
    response = admin.request(request, version)
    assert response.error_code == NONE
    (result,) = response.results_by_transaction
    code = result.topic_results[0].results_by_partition[0].partition_error_code
    assert ErrorCode(code) is ErrorCode.INVALID_PRODUCER_ID_MAPPING


def test_adding_offsets_needs_read_on_the_group(ann: WireClient) -> None:
    producer = TxnProducer.started(ann, "writes", Generation.V1)

    def add(name: str, group: str) -> ErrorCode:
        request = AddOffsetsToTxnRequest(name, producer.producer_id, producer.epoch, group)
        return ErrorCode(ann.request(request, 3).error_code)

    assert add("describes", "readers") is NO_ID
    assert add("writes", "others") is NO_GROUP
    assert add("writes", "readers") is NONE
    assert producer.end(commit=True) is NONE
    wait_for_state(ann, "writes", "CompleteCommit")


@pytest.mark.parametrize("version", [0, 3, 5])
def test_committing_offsets_needs_id_group_and_topics(ann: WireClient, version: int) -> None:
    """WRITE on the transactional id, READ on the group and on every topic."""
    producer = TxnProducer.started(ann, "writes", Generation.V1)
    assert producer.add_offsets("readers") is NONE

    def commit(name: str, group: str, *topics: str) -> dict[str, ErrorCode]:
        request = TxnOffsetCommitRequest(name, group, producer.producer_id, producer.epoch)
        request.topics = [
            TxnOffsetCommitRequestTopic(topic, partitions=[TxnOffsetCommitRequestPartition(0, 5)])
            for topic in topics
        ]
        result = ann.request(request, version).topics
        return {item.name: ErrorCode(item.partitions[0].error_code) for item in result}

    assert commit("describes", "readers", "open") == {"open": NO_ID}
    assert commit("writes", "others", "open") == {"open": NO_GROUP}
    assert commit("writes", "readers", "open", "secret") == {"open": NONE, "secret": NO_TOPIC}
    assert producer.end(commit=True) is NONE
    wait_for_state(ann, "writes", "CompleteCommit")


def produced(client: WireClient, name: str | None, topics: list[str], batch: bytes) -> list[Any]:
    request = produce_request(name, {(topic, 0): batch for topic in topics})
    produce_response = client.request(request, 11)
    return [response.partition_responses[0] for response in produce_response.responses]


def test_produce_needs_write_on_the_id(ann: WireClient) -> None:
    """Transactional records need it for any topic; other records do not need it."""
    producer = TxnProducer.started(ann, "writes", Generation.V1)
    batch = producer.batch("open", b"x")
    for name in ("describes", "hidden"):
        responses = produced(ann, name, ["open", "secret"], batch)
        assert [ErrorCode(response.error_code) for response in responses] == [NO_ID, NO_ID]
    assert producer.add({"open": [0]}) is NONE
    responses = produced(ann, "writes", ["open", "secret"], batch)
    assert [ErrorCode(response.error_code) for response in responses] == [NONE, NO_TOPIC]
    assert producer.end(commit=True) is NONE
    (plain,) = produced(ann, "hidden", ["open"], batch_of(b"plain"))
    assert plain.error_code == NONE


@pytest.mark.parametrize("operation", [AclOperation.CLUSTER_ACTION, AclOperation.ALTER])
def test_markers_need_permission_on_the_cluster(
    ann: WireClient, admin: WireClient, operation: AclOperation
) -> None:
    """CLUSTER_ACTION, as for brokers, or ALTER, as for administrators."""
    topics = [WritableTxnMarkerTopic("open", [1])]
    request = WriteTxnMarkersRequest([WritableTxnMarker(999_999, 0, False, topics, 0)])

    def write() -> ErrorCode:
        (result,) = ann.request(request, 1).markers
        return ErrorCode(result.topics[0].partitions[0].error_code)

    assert write() is NO_CLUSTER
    allow(admin, ANN, operation, ResourceType.CLUSTER, "kafka-cluster")
    try:
        assert write() is NONE
    finally:
        allow(
            admin,
            ANN,
            operation,
            ResourceType.CLUSTER,
            "kafka-cluster",
            permission=AclPermission.DENY,
        )
    assert write() is NO_CLUSTER


def test_only_visible_transactions_are_described(ann: WireClient, admin: WireClient) -> None:
    """The id must be visible, and only visible topics are returned."""
    allow(admin, ANN, AclOperation.DESCRIBE, ID, "mixed")
    producer = TxnProducer.started(admin, "mixed")
    producer.write("open", b"x")
    producer.write("secret", b"x")
    assert [topic.topic for topic in described(ann, "mixed").topics] == ["open"]
    assert len(described(admin, "mixed").topics) == 2
    response = ann.request(DescribeTransactionsRequest(["hidden", "describes", "absent"]), 0)
    codes = [ErrorCode(state.error_code) for state in response.transaction_states]
    assert codes == [NO_ID, NONE, NO_ID]
    assert response.transaction_states[0].transactional_id == "hidden"
    assert response.transaction_states[0].transaction_state == ""
    producer.commit()


def test_only_visible_transactions_are_listed(ann: WireClient, admin: WireClient) -> None:
    def listed(client: WireClient) -> set[str]:
        response = client.request(ListTransactionsRequest(), 0)
        return {state.transactional_id for state in response.transaction_states}

    assert {"writes", "describes"} <= listed(ann)
    assert "hidden" not in listed(ann)
    assert {"writes", "describes", "hidden"} <= listed(admin)
