"""Topics are created, deleted, extended and moved while clients use them."""

import random
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

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
from penstock.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from penstock.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from penstock.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from penstock.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from penstock.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from penstock.records.compress import Compression
from penstock.records.prepare import PreparedAppend
from penstock.storage.log.timestamp_search import TimestampSearch
from tests.support.broker.faults import watching
from tests.support.broker.in_process import RunningBroker, WireClient, running_broker
from tests.support.protocol.admin import TOPIC, try_alter
from tests.support.protocol.requests import (
    NOW,
    batch_of,
    fetch_request,
    make_topic,
    partitions_of,
    produce_request,
    receive_response,
    records_in,
    send_batch,
)

SECONDS = 2.5
TOPICS = ("alpha", "beta", "gamma")
ALLOWED_CODES = frozenset(
    {ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID}
)
Step = Callable[[WireClient, random.Random], None]


@pytest.fixture
def log_dirs(tmp_path: Path) -> list[str]:
    return [str(tmp_path / "a"), str(tmp_path / "b")]


@pytest.fixture
def broker(tmp_path: Path, log_dirs: list[str]) -> Iterator[RunningBroker]:
    settings = {"log.dirs": ",".join(log_dirs), "auto.create.topics.enable": "false"}
    with watching(), running_broker(tmp_path, settings) as running:
        yield running


def produce(client: WireClient, rng: random.Random) -> None:
    """Small batches are validated on the event loop, large compressed ones on a thread."""
    codec = rng.choice([Compression.NONE, Compression.NONE, Compression.LZ4])
    size = 150_000 if codec is Compression.LZ4 else 200
    batch = batch_of(rng.randbytes(size), codec=codec)
    partition = rng.randrange(3)
    response = send_batch(client, rng.choice(TOPICS), batch, partition=partition)
    assert response.error_code in ALLOWED_CODES | {ErrorCode.NOT_LEADER_OR_FOLLOWER}, (
        response.error_message
    )


def fetch(client: WireClient, rng: random.Random) -> None:
    topic = rng.choice(TOPICS)
    request = fetch_request(
        {topic: {index: rng.randrange(3) for index in range(3)}}, max_wait_ms=20, min_bytes=1
    )
    for data in partitions_of(client.request(request, 11)).values():
        assert data.error_code in ALLOWED_CODES | {ErrorCode.OFFSET_OUT_OF_RANGE}
        offsets = [record.offset for record in records_in(data)]
        assert offsets == list(range(offsets[0], offsets[0] + len(offsets))) if offsets else True


def query(client: WireClient, rng: random.Random) -> None:
    topic = rng.choice(TOPICS)
    partitions = [ListOffsetsPartition(0, timestamp=rng.choice([-1, -2, -3, NOW]))]
    response = client.request(
        ListOffsetsRequest(-1, topics=[ListOffsetsTopic(topic, partitions)]), 7
    )
    assert response.topics[0].partitions[0].error_code in ALLOWED_CODES | {
        ErrorCode.NOT_LEADER_OR_FOLLOWER
    }
    topics = client.request(MetadataRequest([MetadataRequestTopic(name=topic)]), 9).topics
    assert topics[0].error_code in ALLOWED_CODES


def create_or_delete(client: WireClient, rng: random.Random) -> None:
    topic = rng.choice(TOPICS)
    if rng.random() < 0.6:
        new_topic = CreatableTopic(topic, rng.randrange(1, 3), 1)
        code = client.request(CreateTopicsRequest([new_topic], 1000), 7).topics[0].error_code
        assert code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS)
    else:
        request = DeleteTopicsRequest([DeleteTopicState(topic)], timeout_ms=1000)
        assert client.request(request, 6).responses[0].error_code in ALLOWED_CODES


def change(client: WireClient, rng: random.Random) -> None:
    topic = rng.choice(TOPICS)
    match rng.randrange(3):
        case 0:
            request = CreatePartitionsRequest([CreatePartitionsTopic(topic, 3, None)], 1000)
            code = client.request(request, 3).results[0].error_code
            assert code in ALLOWED_CODES | {ErrorCode.INVALID_PARTITIONS}
        case 1:
            value = rng.choice(["gzip", "producer", "zstd"])
            code, _ = try_alter(client, TOPIC, topic, {"compression.type": value})
            assert code in ALLOWED_CODES
        case _:
            partition = DeleteRecordsPartition(0, -1)
            deletion = DeleteRecordsRequest([DeleteRecordsTopic(topic, [partition])], 1000)
            assert client.request(deletion, 2).topics[0].partitions[0].error_code in ALLOWED_CODES


def mover(log_dirs: list[str]) -> Step:
    def move(client: WireClient, rng: random.Random) -> None:
        topics = [AlterReplicaLogDirTopic(rng.choice(TOPICS), [0])]
        request = AlterReplicaLogDirsRequest([AlterReplicaLogDir(rng.choice(log_dirs), topics)])
        code = client.request(request, 2).results[0].partitions[0].error_code
        assert code in ALLOWED_CODES | {ErrorCode.REPLICA_NOT_AVAILABLE}
        time.sleep(0.01)

    return move


def test_clients_and_administrators_work_concurrently(
    broker: RunningBroker, log_dirs: list[str]
) -> None:
    """There is no unexpected exception and no wrong response, and the broker stops cleanly."""
    stop = time.monotonic() + SECONDS
    failures: list[BaseException] = []
    counts: dict[str, int] = {}

    def repeat(name: str, step: Step, seed: int) -> None:
        rng = random.Random(seed)
        try:
            with broker.connect() as client:
                while time.monotonic() < stop and not failures:
                    step(client, rng)
                    counts[name] = counts.get(name, 0) + 1
        except BaseException as error:  # noqa: BLE001 - raised again below
            failures.append(error)

    steps: list[Step] = [produce, produce, fetch, query, create_or_delete, change, mover(log_dirs)]
    threads = [
        threading.Thread(target=repeat, args=(f"{step.__name__}-{seed}", step, seed))
        for seed, step in enumerate(steps)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    assert len(counts) == len(steps)
    assert min(counts.values()) > 5, counts


class Gate:
    """Delays work on threads."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self.open = threading.Event()

    def wait(self) -> None:
        self.reached.set()
        assert self.open.wait(60)


def test_a_topic_is_deleted_while_its_batch_is_validated(
    broker: RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The producer gets NOT_LEADER_OR_FOLLOWER, and its connection stays open."""
    gate = Gate()
    run = PreparedAppend.run

    def delayed_run(prepared: PreparedAppend) -> None:
        gate.wait()
        run(prepared)

    monkeypatch.setattr(PreparedAppend, "run", delayed_run)
    batch = batch_of(random.Random(1).randbytes(200_000), codec=Compression.LZ4)
    with broker.connect() as client, broker.connect() as second_client:
        make_topic(client, "deleted")
        request = produce_request("deleted", batch)
        client.send(request, 9)
        assert gate.reached.wait(60)
        deletion = DeleteTopicsRequest([DeleteTopicState("deleted")], timeout_ms=1000)
        assert second_client.request(deletion, 6).responses[0].error_code == 0
        gate.open.set()
        (response,) = receive_response(client, request, 9).responses[0].partition_responses
        assert response.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        make_topic(client, "deleted")
        assert send_batch(client, "deleted", batch).base_offset == 0


def test_a_partition_moves_while_it_is_searched_by_time(
    broker: RunningBroker, log_dirs: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The search continues in the log at its new location."""
    gate = Gate()
    run = TimestampSearch.run

    def delayed_run(search: TimestampSearch) -> None:
        gate.wait()
        run(search)

    monkeypatch.setattr(TimestampSearch, "run", delayed_run)
    with broker.connect() as client, broker.connect() as second_client:
        make_topic(client, "moving")
        assert send_batch(client, "moving", batch_of(b"a")).error_code == 0
        partitions = [ListOffsetsPartition(0, timestamp=NOW)]
        request = ListOffsetsRequest(-1, topics=[ListOffsetsTopic("moving", partitions)])
        client.send(request, 7)
        assert gate.reached.wait(60)
        (source,) = (path for path in log_dirs if (Path(path) / "moving-0").exists())
        target = log_dirs[1 - log_dirs.index(source)]
        move = AlterReplicaLogDir(target, [AlterReplicaLogDirTopic("moving", [0])])
        assert (
            second_client.request(AlterReplicaLogDirsRequest([move]), 2).results[0].partitions[0]
            is not None
        )
        while not (Path(target) / "moving-0").exists():
            time.sleep(0.002)
        gate.open.set()
        (response,) = receive_response(client, request, 7).topics[0].partitions
        assert (response.error_code, response.offset, response.timestamp) == (0, 0, NOW)
