"""The coordinators: how long a start takes with a million commits, and what requests cost."""

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

from bench.broker_client import Client
from bench.broker_process import clients_on_a_core, start_broker
from bench.coordinator_requests import requests
from bench.report import Row, at_most
from penstock.coordinator.group.offsets.records import OffsetRecord
from penstock.coordinator.group.records import encode_record
from penstock.coordinator.partitioning import partition_for
from penstock.core.errors import ErrorCode
from penstock.core.ids import TopicPartition
from penstock.core.system_clock import SystemClock
from penstock.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
)
from penstock.protocol.stored.offsets import OffsetCommitKey, OffsetCommitValue
from penstock.records.append_policy import AppendOrigin
from penstock.records.build import build_batch
from penstock.records.record import Record
from penstock.storage.disk import OsDisk
from penstock.storage.log_config import LogConfig
from penstock.storage.manager.log_manager import LogManager

COMMITS = 1_000_000
LOAD_SECONDS = 5
PARTITIONS = 50
PER_BATCH = 10
"""Partitions that a member commits at a time."""
TOPIC = "__consumer_offsets"
_NOW_MS = 1_790_000_000_000
_IDS = [UUID(int=number + 1) for number in range(10)]


def run() -> list[Row]:
    with tempfile.TemporaryDirectory() as directory, clients_on_a_core():
        return [
            *requests(Path(directory)),
            *loading(Path(directory) / "distinct", groups=COMMITS // 100, rounds=1),
            *loading(Path(directory) / "repeated", groups=COMMITS // 1000, rounds=10),
        ]


def loading(directory: Path, *, groups: int, rounds: int) -> list[Row]:
    """Measures the start of a broker after groups committed 100 partitions each, `rounds` times."""
    names = [f"group-{number}" for number in range(groups)]
    fill(directory / "data", names, rounds)
    spread = {partition_for(name, PARTITIONS): name for name in names}
    start = time.perf_counter()
    with start_broker(directory) as broker:
        ready = time.perf_counter()
        with Client(broker.address) as client:
            wait_until_loaded(client, list(spread.values()))
        loaded = time.perf_counter()
        memory = broker.memory().resident
    what = f"{COMMITS:,} commits, {groups * 100:,} offsets"
    return [
        at_most(f"{what}: start to the last one loaded", loaded - start, "s", LOAD_SECONDS),
        Row("  of which after the broker is ready", loaded - ready, "s"),
        Row("  resident then", memory, "MiB"),
    ]


def fill(directory: Path, groups: list[str], rounds: int) -> None:
    """Writes the logs of the topic as a broker would have left them."""
    manager = LogManager(OsDisk(), [str(directory)], SystemClock())
    manager.open(node_id=0, cluster_id="bench-of-the-groups-00")
    manager.load(lambda _: LogConfig(), lambda *_: True)
    logs = [
        manager.get_or_create(TopicPartition(TOPIC, index), LogConfig(), UUID(int=7), is_new=True)
        for index in range(PARTITIONS)
    ]
    for number in range(rounds):
        for group in groups:
            log = logs[partition_for(group, PARTITIONS)]
            for batch in commits(group, number):
                log.append_as_leader(batch, 0, origin=AppendOrigin.COORDINATOR)
    manager.shutdown()


def commits(group: str, number: int) -> Iterator[bytearray]:
    for topic, topic_id in enumerate(_IDS):
        records = []
        for partition in range(PER_BATCH):
            key = OffsetCommitKey(group, f"topic-{topic}", partition)
            value = OffsetCommitValue(number, 0, "", _NOW_MS, -1, topic_id)
            records.append(Record(partition, _NOW_MS, *encode_record(OffsetRecord(key, value))))
        yield build_batch(records)


def wait_until_loaded(client: Client, groups: list[str]) -> None:
    """Requests committed offsets of groups of all partitions until every request succeeds."""
    request = OffsetFetchRequest(
        groups=[OffsetFetchRequestGroup(name, topics=None) for name in groups]
    )
    loading_codes = {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR}
    while True:
        response = client.send_request(request, 9, OffsetFetchResponse)
        errors = {group.error_code for group in response.groups}
        if not errors & loading_codes:
            break
        time.sleep(0.05)
    committed = sum(len(t.partitions) for group in response.groups for t in group.topics)
    if errors != {0} or committed != 100 * len(groups):
        raise RuntimeError(f"errors {errors}, {committed} offsets of {len(groups)} groups")
