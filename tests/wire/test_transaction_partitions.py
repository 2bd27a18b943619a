"""Changes to a partition while it is in a transaction: deletion, growth, moves (P4)."""

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
from tests.support.protocol.requests import make_topic, produce_values

both_generations = pytest.mark.parametrize(
    "generation", Generation, ids=lambda generation: generation.name
)


class LogDirs(NamedTuple):
    broker: RunningBroker
    paths: list[str]


@pytest.fixture(scope="module")
def log_dirs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LogDirs]:
    root = tmp_path_factory.mktemp("places")
    paths = [str(root / "a"), str(root / "b")]
    settings = {"log.dirs": ",".join(paths), "transaction.state.log.num.partitions": "2"}
    with watching(), running_broker(root, settings) as broker:
        yield LogDirs(broker, paths)


@pytest.fixture
def client(log_dirs: LogDirs) -> Iterator[WireClient]:
    with log_dirs.broker.connect() as wire_client:
        yield wire_client


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """A topic and transactional id that no other test uses."""
    text: str = request.node.name
    return "".join(character if character.isalnum() else "-" for character in text)


def delete_topic(client: WireClient, topic: str) -> None:
    response = client.request(DeleteTopicsRequest(topic_names=[topic], timeout_ms=5000), 3)
    assert response.responses[0].error_code == 0


@both_generations
@pytest.mark.parametrize("commit", [True, False])
def test_a_transaction_ends_after_a_topic_is_deleted(
    client: WireClient, name: str, generation: Generation, commit: bool
) -> None:
    """The transaction ends in the remaining partitions."""
    make_topic(client, f"{name}-deleted")
    make_topic(client, name)
    producer = TxnProducer.started(client, name, generation)
    producer.write(f"{name}-deleted", b"x")
    producer.write(name, b"y")
    delete_topic(client, f"{name}-deleted")
    (producer.commit if commit else producer.abort)()
    assert committed(client, name) == ([b"y"] if commit else [])
    producer.write(name, b"z")
    producer.commit()
    assert committed(client, name)[-1] == b"z"


@both_generations
def test_a_transaction_ends_after_all_its_topics_are_deleted(
    client: WireClient, name: str, generation: Generation
) -> None:
    """No partition needs a marker, so the transaction completes."""
    make_topic(client, name)
    producer = TxnProducer.started(client, name, generation)
    producer.write(name, b"x")
    delete_topic(client, name)
    producer.commit()
    assert described(client, name).topics == []


@both_generations
def test_a_recreated_topic_has_no_records_of_the_transaction(
    client: WireClient, name: str, generation: Generation
) -> None:
    """The new topic gets only the marker of the transaction."""
    make_topic(client, name)
    producer = TxnProducer.started(client, name, generation)
    producer.write(name, b"old")
    delete_topic(client, name)
    make_topic(client, name)
    produce_values(client, name, b"plain")
    assert committed(client, name) == [b"plain"]
    producer.commit()
    assert committed(client, name) == [b"plain"]
    data = fetched_committed(client, name)
    assert data.last_stable_offset == data.high_watermark


@both_generations
def test_a_transaction_writes_to_added_partitions(
    client: WireClient, name: str, generation: Generation
) -> None:
    """A transaction can include partitions that were created after it began."""
    make_topic(client, name)
    producer = TxnProducer.started(client, name, generation)
    producer.write(name, b"x")
    new_partitions = [CreatePartitionsTopic(name, 2, None)]
    response = client.request(CreatePartitionsRequest(new_partitions, 5000, False), 3)
    assert response.results[0].error_code == 0
    producer.write(name, b"y", partition=1)
    producer.commit()
    assert (committed(client, name), committed(client, name, 1)) == ([b"x"], [b"y"])


def move(log_dirs: LogDirs, client: WireClient, topic: str) -> None:
    """Moves partition 0 to the other log directory and waits for the end of the move."""

    def current_log_dir() -> str:
        return log_dirs.broker.call(
            lambda inside: str(Path(inside.replicas.find(topic, 0).log.directory).parent)
        )

    source = current_log_dir()
    (target,) = (path for path in log_dirs.paths if path != source)
    move_request = AlterReplicaLogDir(target, [AlterReplicaLogDirTopic(topic, [0])])
    (result,) = client.request(AlterReplicaLogDirsRequest([move_request]), 2).results
    assert result.partitions[0].error_code == 0
    deadline = time.monotonic() + 15
    while current_log_dir() != target:
        assert time.monotonic() < deadline, "the move does not end"
        time.sleep(0.005)


@both_generations
@pytest.mark.parametrize("commit", [True, False])
def test_a_partition_in_a_transaction_moves(
    log_dirs: LogDirs, client: WireClient, name: str, generation: Generation, commit: bool
) -> None:
    """The open transaction and the aborted one before it move to the other log directory."""
    make_topic(client, name)
    producer = TxnProducer.started(client, name, generation)
    producer.write(name, b"aborted")
    producer.abort()
    producer.write(name, b"x")
    move(log_dirs, client, name)
    assert latest(client, name, READ_COMMITTED) == 2
    producer.write(name, b"y")
    (producer.commit if commit else producer.abort)()
    assert committed(client, name) == ([b"x", b"y"] if commit else [])
    late = producer.send(name, b"late", version=11)
    assert ErrorCode(late.error_code) is ErrorCode.TRANSACTION_ABORTABLE
    producer.write(name, b"z")
    move(log_dirs, client, name)
    producer.commit()
    assert committed(client, name)[-1] == b"z"


def test_the_coordinator_partition_moves(log_dirs: LogDirs, client: WireClient) -> None:
    make_topic(client, "own")
    producers = [TxnProducer.started(client, f"own-{index}") for index in range(4)]
    for producer in producers:
        producer.write("own", b"x")
    move(log_dirs, client, "__transaction_state")
    for producer in producers:
        producer.commit()
    assert committed(client, "own") == [b"x"] * 4


@both_generations
@pytest.mark.parametrize("commit", [True, False])
def test_deleting_the_records_of_an_open_transaction(
    client: WireClient, name: str, generation: Generation, commit: bool
) -> None:
    """S4: DeleteRecords removes all of them; later records still belong to the transaction."""
    make_topic(client, name)
    producer = TxnProducer.started(client, name, generation)
    producer.write(name, b"a", b"b")
    deletion = DeleteRecordsTopic(name, [DeleteRecordsPartition(0, -1)])
    (response,) = client.request(DeleteRecordsRequest([deletion], 5000), 2).topics
    assert (response.partitions[0].error_code, response.partitions[0].low_watermark) == (0, 2)
    data = fetched_committed(client, name, offset=2)
    assert (data.log_start_offset, data.last_stable_offset) == (2, 2)
    producer.write(name, b"c")
    assert latest(client, name, READ_COMMITTED) == 2
    produce_values(client, name, b"plain")
    (producer.commit if commit else producer.abort)()
    data = fetched_committed(client, name, offset=2)
    assert data.last_stable_offset == data.high_watermark == 5
    assert len(data.aborted_transactions) == (0 if commit else 1)
    wait_for_state(client, name, "CompleteCommit" if commit else "CompleteAbort")
