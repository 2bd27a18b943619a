"""DescribeLogDirs and AlterReplicaLogDirs: partitions move between log directories (S1)."""

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from penstock.core.errors import ErrorCode
from penstock.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from penstock.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from penstock.protocol.messages.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
)
from tests.support.broker.faults import watching
from tests.support.broker.in_process import RunningBroker, WireClient, running_broker
from tests.support.protocol.requests import (
    batch_of,
    fetch_partition,
    fetch_request,
    make_topic,
    new_producer,
    partitions_of,
    produce_values,
    send_batch,
    values_in,
)

DEADLINE_S = 15.0


class LogDirs(NamedTuple):
    broker: RunningBroker
    a: str
    b: str

    def other(self, path: str) -> str:
        return self.b if path == self.a else self.a


@pytest.fixture(scope="module")
def log_dirs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LogDirs]:
    root = tmp_path_factory.mktemp("log_dirs")
    a, b = str(root / "a"), str(root / "b")
    with watching(), running_broker(root, {"log.dirs": f"{a},{b}"}) as broker:
        yield LogDirs(broker, a, b)


@pytest.fixture
def client(log_dirs: LogDirs) -> Iterator[WireClient]:
    with log_dirs.broker.connect() as wire_client:
        yield wire_client


def described(client: WireClient, topic: str, version: int = 4) -> dict[str, Any]:
    """Returns the data of partition 0 of a topic by log directory."""
    request = DescribeLogDirsRequest([DescribableLogDirTopic(topic, [0])])
    response = client.request(request, version)
    return {
        result.log_dir: part
        for result in response.results
        for topic in result.topics
        for part in topic.partitions
    }


def current_log_dir(client: WireClient, topic: str) -> str:
    (path,) = (path for path, part in described(client, topic).items() if not part.is_future_key)
    return path


def move(
    client: WireClient, topic: str, path: str, version: int = 2, partition: int = 0
) -> ErrorCode:
    move_request = AlterReplicaLogDir(path, [AlterReplicaLogDirTopic(topic, [partition])])
    (result,) = client.request(AlterReplicaLogDirsRequest([move_request]), version).results
    assert result.topic_name == topic
    return ErrorCode(result.partitions[0].error_code)


def await_log_dir(client: WireClient, topic: str, path: str) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while list(described(client, topic)) != [path]:
        assert time.monotonic() < deadline, "the move does not end"
        time.sleep(0.005)


@pytest.mark.parametrize("version", range(6))
def test_log_dirs_are_described(log_dirs: LogDirs, client: WireClient, version: int) -> None:
    make_topic(client, topic := f"described-{version}")
    produce_values(client, topic, b"x" * 1000)
    response = client.request(DescribeLogDirsRequest(None), version)
    assert response.error_code == 0
    assert {result.log_dir for result in response.results} == {log_dirs.a, log_dirs.b}
    for result in response.results:
        assert result.error_code == 0
        assert (result.usable_bytes > 0) == (result.total_bytes > 0) == (version >= 4)
    (part,) = described(client, topic, version).values()
    assert (part.partition_size > 1000, part.offset_lag, part.is_future_key) == (True, 0, False)
    assert described(client, "unknown", version) == {}


def test_new_partitions_are_spread_over_log_dirs(log_dirs: LogDirs, client: WireClient) -> None:
    make_topic(client, "spread", 6)
    response = client.request(DescribeLogDirsRequest(None), 4)
    counts = [sum(len(topic.partitions) for topic in result.topics) for result in response.results]
    assert abs(counts[0] - counts[1]) <= 1


@pytest.mark.parametrize("version", [0, 1, 2])
def test_a_partition_moves_to_another_log_dir(
    log_dirs: LogDirs, client: WireClient, version: int
) -> None:
    make_topic(client, topic := f"moved-{version}")
    produce_values(client, topic, b"before")
    target = log_dirs.other(current_log_dir(client, topic))
    assert move(client, topic, target, version) is ErrorCode.NONE
    await_log_dir(client, topic, target)
    assert (Path(target) / f"{topic}-0").is_dir()
    assert produce_values(client, topic, b"after") == 1
    assert values_in(fetch_partition(client, topic)) == [b"before", b"after"]
    assert move(client, topic, target, version) is ErrorCode.NONE, (
        "it is already in the target directory"
    )


@pytest.mark.parametrize("version", [0, 1, 2])
def test_invalid_moves_are_rejected(log_dirs: LogDirs, client: WireClient, version: int) -> None:
    make_topic(client, topic := f"unmoved-{version}")
    assert move(client, topic, "/nowhere", version) is ErrorCode.LOG_DIR_NOT_FOUND
    unknown = move(client, "unknown", log_dirs.a, version)
    assert unknown in (ErrorCode.REPLICA_NOT_AVAILABLE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


def test_a_partition_moves_under_load(log_dirs: LogDirs, client: WireClient) -> None:
    """Records are produced and consumed during the moves; none is lost or duplicated (P3)."""
    topic = "busy"
    make_topic(client, topic, configs={"segment.bytes": "1048576"})
    sent: list[bytes] = []
    consumed: list[bytes | None] = []
    stop = threading.Event()
    all_sent = threading.Event()
    failures: list[BaseException] = []

    def produce_records() -> None:
        with log_dirs.broker.connect() as connection:
            producer = new_producer(connection)
            while not stop.is_set():
                value = b"%06d" % len(sent) + bytes(4000)
                batch = batch_of(value, producer=(*producer, len(sent)))
                response = send_batch(connection, topic, batch)
                assert (response.error_code, response.base_offset) == (0, len(sent))
                sent.append(value)
        all_sent.set()

    def consume_records() -> None:
        with log_dirs.broker.connect() as connection:
            while not all_sent.is_set() or len(consumed) < len(sent):
                request = fetch_request({topic: {0: len(consumed)}}, max_wait_ms=50, min_bytes=1)
                (data,) = partitions_of(connection.request(request, 11)).values()
                assert data.error_code == 0
                consumed.extend(values_in(data))

    def collect_failures(work: Any) -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001 - raised again below
            failures.append(error)
            all_sent.set()

    threads = [
        threading.Thread(target=collect_failures, args=(work,))
        for work in (produce_records, consume_records)
    ]
    for thread in threads:
        thread.start()
    try:
        for _ in range(5):
            target = log_dirs.other(current_log_dir(client, topic))
            before = len(sent)
            assert move(client, topic, target) is ErrorCode.NONE
            await_log_dir(client, topic, target)
            while len(sent) < before + 100 and not failures:
                time.sleep(0.002)
    finally:
        stop.set()
        for thread in threads:
            thread.join(DEADLINE_S)
    if failures:
        raise failures[0]
    assert not any(thread.is_alive() for thread in threads)
    assert len(sent) >= 500
    assert consumed == sent


def test_an_interrupted_move_continues_after_a_restart(tmp_path: Path) -> None:
    """The response is sent when the move begins; the next start finishes it."""
    a, b = str(tmp_path / "a"), str(tmp_path / "b")
    settings = {"log.dirs": f"{a},{b}"}
    with running_broker(tmp_path, settings) as broker, broker.connect() as client:
        make_topic(client, "t")
        for number in range(20):
            produce_values(client, "t", b"%d" % number + bytes(200_000))
        target = b if current_log_dir(client, "t") == a else a
        assert move(client, "t", target) is ErrorCode.NONE
    with running_broker(tmp_path, settings) as broker, broker.connect() as client:
        await_log_dir(client, "t", target)
        result: list[bytes | None] = []
        while len(result) < 20:
            result += values_in(fetch_partition(client, "t", len(result)))
        assert [value and value.rstrip(b"\0") for value in result] == [b"%d" % n for n in range(20)]
        assert produce_values(client, "t", b"after") == 20


def test_a_topic_with_a_moving_partition_can_be_deleted(
    log_dirs: LogDirs, client: WireClient
) -> None:
    make_topic(client, "leaving")
    for _ in range(10):
        produce_values(client, "leaving", bytes(200_000))
    assert (
        move(client, "leaving", log_dirs.other(current_log_dir(client, "leaving")))
        is ErrorCode.NONE
    )
    request = DeleteTopicsRequest([DeleteTopicState("leaving")], timeout_ms=1000)
    assert client.request(request, 6).responses[0].error_code == 0
    assert described(client, "leaving") == {}
    make_topic(client, "leaving")
    assert produce_values(client, "leaving", b"new") == 0
