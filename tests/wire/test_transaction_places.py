"""What may happen to a partition while it is in a transaction (P4)."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from penstock.core.errors import ErrorCode
from penstock.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from penstock.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from penstock.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from penstock.protocol.messages.delete_topics import DeleteTopicsRequest
from tests.support.broker.faults import watching
from tests.support.broker.in_process import RunningBroker, WireClient, running_broker
from tests.support.coordinator.transaction_client import (
    READ_COMMITTED,
    Generation,
    TxnProducer,
    committed,
    described,
    fetched_committed,
    latest,
    wait_for_state,
)
from tests.support.protocol.requests import make_topic, produced

both = pytest.mark.parametrize("generation", Generation, ids=lambda each: each.name)


class Folders(NamedTuple):
    broker: RunningBroker
    paths: list[str]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Folders]:
    root = tmp_path_factory.mktemp("places")
    paths = [str(root / "a"), str(root / "b")]
    settings = {"log.dirs": ",".join(paths), "transaction.state.log.num.partitions": "2"}
    with watching(), running_broker(root, settings) as broker:
        yield Folders(broker, paths)


@pytest.fixture
def client(folders: Folders) -> Iterator[WireClient]:
    with folders.broker.connect() as one:
        yield one


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """A topic and transactional id that no other test uses."""
    text: str = request.node.name
    return "".join(item if item.isalnum() else "-" for item in text)


def delete_topic(client: WireClient, topic: str) -> None:
    response = client.request(DeleteTopicsRequest(topic_names=[topic], timeout_ms=5000), 3)
    assert response.responses[0].error_code == 0


@both
@pytest.mark.parametrize("commit", [True, False])
def test_a_topic_is_deleted(
    client: WireClient, name: str, generation: Generation, commit: bool
) -> None:
    """The transaction ends in those that are left."""
    make_topic(client, f"{name}-gone")
    make_topic(client, name)
    producer = TxnProducer.started(client, name, generation)
    producer.write(f"{name}-gone", b"x")
    producer.write(name, b"y")
    delete_topic(client, f"{name}-gone")
    (producer.commit if commit else producer.abort)()
    assert committed(client, name) == ([b"y"] if commit else [])
    producer.write(name, b"z")
    producer.commit()
    assert committed(client, name)[-1] == b"z"


@both
def test_all_its_topics_are_deleted(client: WireClient, name: str, generation: Generation) -> None:
    """There is no place left to end in; so it has."""
    make_topic(client, name)
    producer = TxnProducer.started(client, name, generation)
    producer.write(name, b"x")
    delete_topic(client, name)
    producer.commit()
    assert described(client, name).topics == []


@both
def test_a_topic_is_made_again(client: WireClient, name: str, generation: Generation) -> None:
    """The new one has nothing of the transaction but its marker."""
    make_topic(client, name)
    producer = TxnProducer.started(client, name, generation)
    producer.write(name, b"old")
    delete_topic(client, name)
    make_topic(client, name)
    produced(client, name, b"plain")
    assert committed(client, name) == [b"plain"]
    producer.commit()
    assert committed(client, name) == [b"plain"]
    data = fetched_committed(client, name)
    assert data.last_stable_offset == data.high_watermark


@both
def test_partitions_are_added(client: WireClient, name: str, generation: Generation) -> None:
    """A transaction extends to those that were not there when it began."""
    make_topic(client, name)
    producer = TxnProducer.started(client, name, generation)
    producer.write(name, b"x")
    wanted = [CreatePartitionsTopic(name, 2, None)]
    response = client.request(CreatePartitionsRequest(wanted, 5000, False), 3)
    assert response.results[0].error_code == 0
    producer.write(name, b"y", partition=1)
    producer.commit()
    assert (committed(client, name), committed(client, name, 1)) == ([b"x"], [b"y"])


def move(directories: Folders, client: WireClient, topic: str) -> None:
    """Moves partition 0 to the other folder, and waits for its end."""

    def home() -> str:
        return directories.broker.call(
            lambda inside: str(Path(inside.replicas.find(topic, 0).log.directory).parent)
        )

    source = home()
    (target,) = (path for path in directories.paths if path != source)
    wanted = AlterReplicaLogDir(target, [AlterReplicaLogDirTopic(topic, [0])])
    (result,) = client.request(AlterReplicaLogDirsRequest([wanted]), 2).results
    assert result.partitions[0].error_code == 0
    deadline = time.monotonic() + 15
    while home() != target:
        assert time.monotonic() < deadline, "the move does not end"
        time.sleep(0.005)


@both
@pytest.mark.parametrize("commit", [True, False])
def test_a_partition_moves(
    folders: Folders, client: WireClient, name: str, generation: Generation, commit: bool
) -> None:
    """To another folder, with the transaction that is open in it, and the aborted one before."""
    make_topic(client, name)
    producer = TxnProducer.started(client, name, generation)
    producer.write(name, b"aborted")
    producer.abort()
    producer.write(name, b"x")
    move(folders, client, name)
    assert latest(client, name, READ_COMMITTED) == 2
    producer.write(name, b"y")
    (producer.commit if commit else producer.abort)()
    assert committed(client, name) == ([b"x", b"y"] if commit else [])
    late = producer.send(name, b"late", version=11)
    assert ErrorCode(late.error_code) is ErrorCode.TRANSACTION_ABORTABLE
    producer.write(name, b"z")
    move(folders, client, name)
    producer.commit()
    assert committed(client, name)[-1] == b"z"


def test_the_coordinators_own_partition_moves(folders: Folders, client: WireClient) -> None:
    """It goes on where it was."""
    make_topic(client, "own")
    producers = [TxnProducer.started(client, f"own-{index}") for index in range(4)]
    for producer in producers:
        producer.write("own", b"x")
    move(folders, client, "__transaction_state")
    for producer in producers:
        producer.commit()
    assert committed(client, "own") == [b"x"] * 4


@both
@pytest.mark.parametrize("commit", [True, False])
def test_records_of_an_open_transaction_are_deleted(
    client: WireClient, name: str, generation: Generation, commit: bool
) -> None:
    """S4: all of them, with DeleteRecords; what is written after is part of it still."""
    make_topic(client, name)
    producer = TxnProducer.started(client, name, generation)
    producer.write(name, b"a", b"b")
    wanted = DeleteRecordsTopic(name, [DeleteRecordsPartition(0, -1)])
    (response,) = client.request(DeleteRecordsRequest([wanted], 5000), 2).topics
    assert (response.partitions[0].error_code, response.partitions[0].low_watermark) == (0, 2)
    data = fetched_committed(client, name, offset=2)
    assert (data.log_start_offset, data.last_stable_offset) == (2, 2)
    producer.write(name, b"c")
    assert latest(client, name, READ_COMMITTED) == 2
    produced(client, name, b"plain")
    (producer.commit if commit else producer.abort)()
    data = fetched_committed(client, name, offset=2)
    assert data.last_stable_offset == data.high_watermark == 5
    assert len(data.aborted_transactions) == (0 if commit else 1)
    wait_for_state(client, name, "CompleteCommit" if commit else "CompleteAbort")
