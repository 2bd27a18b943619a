"""Group offsets in transactions take effect when the transaction is committed (P4, C4)."""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from uuid import UUID

import pytest

from penstock.broker.broker import Broker
from penstock.core.errors import ErrorCode
from penstock.core.ids import TopicPartition
from penstock.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from penstock.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from penstock.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from penstock.protocol.messages.write_txn_markers import WritableTxnMarker
from tests.support.broker.faults import watching
from tests.support.broker.in_process import RunningBroker, WireClient, running_broker
from tests.support.coordinator.group_client import find_group
from tests.support.coordinator.transaction_client import (
    Generation,
    TxnProducer,
    committed,
    described,
    fetched_committed,
    nowhere,
    wait_for_state,
)
from tests.support.protocol.requests import make_topic

NONE = ErrorCode.NONE
FIRST_THAT_ADDS = 5
FIRST_WITH_TOPIC_IDS = 6
both_generations = pytest.mark.parametrize(
    "generation", Generation, ids=lambda generation: generation.name
)
SETTINGS = {"transaction.state.log.num.partitions": "2", "offsets.topic.num.partitions": "3"}


@pytest.fixture(scope="module")
def settings() -> Mapping[str, str]:
    return SETTINGS


@pytest.fixture
def client(broker: RunningBroker) -> Iterator[WireClient]:
    with broker.connect() as wire_client:
        find_group(wire_client, "any")
        yield wire_client


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """A topic, group and transactional id that no other test uses."""
    text: str = request.node.name
    return "".join(character if character.isalnum() else "-" for character in text)


def version_of(producer: TxnProducer) -> int:
    """Returns the version of TxnOffsetCommit for the generation of the producer."""
    return 4 if producer.adds_itself else FIRST_THAT_ADDS


def send_offsets(
    producer: TxnProducer,
    topic: str | UUID,
    offset: int,
    *,
    group: str,
    version: int | None = None,
    partition: int = 0,
    member: tuple[str, int] = ("", -1),
) -> ErrorCode:
    """Sends a TxnOffsetCommit for one partition; returns its error code."""
    topic_data = TxnOffsetCommitRequestTopic(
        partitions=[TxnOffsetCommitRequestPartition(partition, offset, 7, "note")]
    )
    if isinstance(topic, str):
        topic_data.name = topic
    else:
        topic_data.topic_id = topic
    request = TxnOffsetCommitRequest(
        producer.transactional_id,
        group,
        producer.producer_id,
        producer.epoch,
        generation_id_or_member_epoch=member[1],
        member_id=member[0],
        topics=[topic_data],
    )
    version = version_of(producer) if version is None else version
    response = producer.client.request(request, version)
    (result,) = response.topics
    assert (result.topic_id if version >= FIRST_WITH_TOPIC_IDS else result.name) == topic
    return ErrorCode(result.partitions[0].error_code)


def begin(producer: TxnProducer, group: str) -> None:
    if producer.adds_itself:
        assert producer.add_offsets(group) is NONE


def fetched_offset(
    client: WireClient, group: str, topic: str, *, stable: bool = False, version: int = 7
) -> tuple[ErrorCode, int]:
    """Fetches the offset of partition 0, with or without `require_stable`."""
    if version < 8:
        old = OffsetFetchRequest(group, [OffsetFetchRequestTopic(topic, [0])])
        old.require_stable = stable
        response = client.request(old, version)
        assert response.error_code == NONE
        part = response.topics[0].partitions[0]
    else:
        topic_request = OffsetFetchRequestTopics(topic, partition_indexes=[0])
        new = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group, topics=[topic_request])])
        new.require_stable = stable
        (result,) = client.request(new, version).groups
        assert result.error_code == NONE
        part = result.topics[0].partitions[0]
    return ErrorCode(part.error_code), part.committed_offset


def commit_without_transaction(client: WireClient, group: str, topic: str, offset: int) -> None:
    topics = [OffsetCommitRequestTopic(topic, partitions=[OffsetCommitRequestPartition(0, offset)])]
    response = client.request(OffsetCommitRequest(group, topics=topics), 8)
    assert response.topics[0].partitions[0].error_code == NONE


@pytest.mark.parametrize("version", range(7))
@pytest.mark.parametrize("commit", [True, False])
def test_offsets_take_effect_with_the_commit(
    client: WireClient, name: str, version: int, commit: bool
) -> None:
    topic_id = make_topic(client, name)
    generation = Generation.V2 if version >= FIRST_THAT_ADDS else Generation.V1
    producer = TxnProducer.started(client, name, generation)
    commit_without_transaction(client, name, name, 3)
    begin(producer, name)
    topic = topic_id if version >= FIRST_WITH_TOPIC_IDS else name
    assert send_offsets(producer, topic, 9, group=name, version=version) is NONE
    assert [topic.topic for topic in described(client, name).topics] == ["__consumer_offsets"]
    for fetch_version in (7, 8, 9):
        plain = fetched_offset(client, name, name, version=fetch_version)
        assert plain == (NONE, 3)
        unstable = fetched_offset(client, name, name, stable=True, version=fetch_version)
        assert unstable == (ErrorCode.UNSTABLE_OFFSET_COMMIT, -1)
    (producer.commit if commit else producer.abort)()
    for stable in (True, False):
        result = fetched_offset(client, name, name, stable=stable)
        assert result == (NONE, 9 if commit else 3)


@both_generations
def test_offsets_and_records_are_committed_together(
    client: WireClient, name: str, generation: Generation
) -> None:
    """Consume, process and produce in several transactions."""
    make_topic(client, f"{name}-in")
    make_topic(client, name)
    producer = TxnProducer.started(client, name, generation)
    for number in range(1, 7):
        begin(producer, name)
        producer.write(name, b"%d" % number)
        code = ErrorCode.CONCURRENT_TRANSACTIONS
        while code is ErrorCode.CONCURRENT_TRANSACTIONS:
            code = send_offsets(producer, f"{name}-in", number, group=name)
        assert code is NONE
        (producer.commit if number % 2 else producer.abort)()
        last = number if number % 2 else number - 1
        assert fetched_offset(client, name, f"{name}-in", stable=True) == (NONE, last)
    assert committed(client, name) == [b"1", b"3", b"5"]


@pytest.mark.parametrize(
    ("version", "code"),
    [
        (0, ErrorCode.INVALID_TXN_STATE),
        (3, ErrorCode.INVALID_TXN_STATE),
        (4, ErrorCode.TRANSACTION_ABORTABLE),
    ],
)
def test_offsets_of_a_group_that_was_not_added_are_rejected(
    client: WireClient, name: str, version: int, code: ErrorCode
) -> None:
    """KIP-890: nothing is written, so that no transaction hangs."""
    make_topic(client, name)
    producer = TxnProducer.started(client, name, Generation.V1)
    assert send_offsets(producer, name, 9, group=name, version=version) is code
    assert fetched_offset(client, name, name, stable=True) == (NONE, -1)
    assert described(client, name).transaction_state == "Empty"


def test_late_offsets_are_rejected(client: WireClient, name: str) -> None:
    """They are rejected after the end of the transaction, in both generations."""
    make_topic(client, name)
    old = TxnProducer.started(client, f"{name}-1", Generation.V1)
    begin(old, name)
    assert send_offsets(old, name, 5, group=name) is NONE
    old.commit()
    assert send_offsets(old, name, 6, group=name) is ErrorCode.TRANSACTION_ABORTABLE
    new = TxnProducer.started(client, f"{name}-2")
    assert send_offsets(new, name, 7, group=name) is NONE
    late = TxnProducer(client, new.transactional_id)
    late.producer_id, late.epoch = new.producer_id, new.epoch
    new.commit()
    assert send_offsets(late, name, 8, group=name) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert fetched_offset(client, name, name, stable=True) == (NONE, 7)


@pytest.mark.parametrize("version", [4, 5])
def test_offsets_of_a_wrong_producer_are_rejected(
    client: WireClient, name: str, version: int
) -> None:
    make_topic(client, name)
    producer = TxnProducer.started(client, name, Generation.V1)
    begin(producer, name)
    producer.epoch += 1
    code = send_offsets(producer, name, 5, group=name, version=version)
    assert code is ErrorCode.INVALID_PRODUCER_EPOCH
    producer.epoch -= 1
    producer.producer_id += 1_000_000
    code = send_offsets(producer, name, 5, group=name, version=version)
    assert code is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    producer.producer_id -= 1_000_000
    producer.abort()


def test_the_offsets_of_a_fenced_producer_are_dropped(client: WireClient, name: str) -> None:
    """The next producer aborts the open transaction with its offsets."""
    make_topic(client, name)
    old = TxnProducer.started(client, name)
    assert send_offsets(old, name, 5, group=name) is NONE
    new = TxnProducer.started(client, name)
    assert fetched_offset(client, name, name, stable=True) == (NONE, -1)
    assert send_offsets(old, name, 6, group=name) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert send_offsets(new, name, 7, group=name) is NONE
    new.commit()
    assert fetched_offset(client, name, name, stable=True) == (NONE, 7)


def test_the_last_sent_offset_wins(client: WireClient, name: str) -> None:
    """The order of the markers is irrelevant; a commit without a transaction applies at once."""
    make_topic(client, name)
    first = TxnProducer.started(client, f"{name}-1")
    second = TxnProducer.started(client, f"{name}-2")
    assert send_offsets(first, name, 10, group=name) is NONE
    assert send_offsets(second, name, 20, group=name) is NONE
    second.commit()
    unstable = (ErrorCode.UNSTABLE_OFFSET_COMMIT, -1)
    assert fetched_offset(client, name, name) == (NONE, 20)
    assert fetched_offset(client, name, name, stable=True) == unstable
    first.commit()
    assert fetched_offset(client, name, name, stable=True) == (NONE, 20)
    assert send_offsets(first, name, 30, group=name) is NONE
    commit_without_transaction(client, name, name, 25)
    assert fetched_offset(client, name, name) == (NONE, 25)
    first.commit()
    assert fetched_offset(client, name, name, stable=True) == (NONE, 25)


def test_invalid_offset_commits_are_rejected(client: WireClient, name: str) -> None:
    """Unknown partitions, unknown members and an empty group id."""
    make_topic(client, name)
    producer = TxnProducer.started(client, name)
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert send_offsets(producer, name, 1, group=name, partition=9) is unknown
    assert send_offsets(producer, "nowhere", 1, group=name) is unknown
    code = send_offsets(producer, name, 1, group=name, member=("stranger", 3))
    assert code in (ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID)
    assert send_offsets(producer, name, 1, group="") is ErrorCode.INVALID_GROUP_ID
    producer.abort()
    assert fetched_offset(client, name, name, stable=True) == (NONE, -1)


@both_generations
@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("is_prepared", [False, True])
def test_offsets_of_a_transaction_survive_a_restart(
    tmp_path: Path, generation: Generation, commit: bool, is_prepared: bool
) -> None:
    """The transaction is open or prepared when the broker stops."""
    with watching():
        with running_broker(tmp_path, SETTINGS) as broker, broker.connect() as client:
            find_group(client, "g")
            make_topic(client, "t")
            commit_without_transaction(client, "g", "t", 3)
            producer = TxnProducer.started(client, "x", generation)
            begin(producer, "g")
            assert send_offsets(producer, "t", 9, group="g") is NONE
            producer.write("t", b"x")
            if is_prepared:
                broker.call(lose_markers)
                assert producer.end(commit=commit) is NONE
        with running_broker(tmp_path, SETTINGS) as broker, broker.connect() as client:
            find_group(client, "g")
            producer.client = client
            if not is_prepared:
                wait_for_state(client, "x", "Ongoing")
                unstable = fetched_offset(client, "g", "t", stable=True)
                assert unstable == (ErrorCode.UNSTABLE_OFFSET_COMMIT, -1)
                assert fetched_offset(client, "g", "t") == (NONE, 3)
                (producer.commit if commit else producer.abort)()
            wait_for_state(client, "x", "CompleteCommit" if commit else "CompleteAbort")
            assert fetched_offset(client, "g", "t", stable=True) == (NONE, 9 if commit else 3)
            assert committed(client, "t") == ([b"x"] if commit else [])
        with running_broker(tmp_path, SETTINGS) as broker, broker.connect() as client:
            find_group(client, "g")
            wait_for_state(client, "x", "CompleteCommit" if commit else "CompleteAbort")
            assert fetched_offset(client, "g", "t", stable=True) == (NONE, 9 if commit else 3)
            data = fetched_committed(client, "t")
            assert data.last_stable_offset == data.high_watermark


def lose_markers(inside: Broker) -> None:
    """Drops all markers from now on."""
    inside.txn_markers.write = no_markers  # type: ignore[method-assign]
    inside.txn_markers.write_at_once = nowhere  # type: ignore[method-assign]


async def no_markers(
    marker: WritableTxnMarker, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, ErrorCode]:
    return dict.fromkeys(partitions, ErrorCode.NOT_LEADER_OR_FOLLOWER)
