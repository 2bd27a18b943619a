"""A broker whose disk is full refuses what needs room, and continues when there is room again."""

import errno
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.core.errors import ErrorCode
from penstock.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from penstock.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from penstock.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from penstock.storage.disk import OsDisk
from tests.support.broker.in_process import WireClient, running_broker
from tests.support.protocol.requests import (
    batch_of,
    fetch_partition,
    make_topic,
    produce_values,
    send_batch,
    values_in,
)

STORAGE_ERROR = ErrorCode.KAFKA_STORAGE_ERROR


class FullDisk:
    """Makes the disk of the broker in this process full, for all files or for new directories."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.error = errno.ENOSPC
        self.is_full = False
        self.full_for: Callable[[str], bool] = lambda path: False
        pwrite, make_directory = os.pwrite, OsDisk.make_directory

        def limited_pwrite(fd: int, data: Any, position: int) -> int:
            if self.is_full:
                if len(data) > 10:
                    pwrite(fd, bytes(data[:10]), position)
                raise OSError(self.error, os.strerror(self.error))
            return pwrite(fd, data, position)

        def limited_make_directory(disk: OsDisk, path: str) -> None:
            if self.is_full or self.full_for(path):
                raise OSError(self.error, os.strerror(self.error), path)
            make_directory(disk, path)

        monkeypatch.setattr(os, "pwrite", limited_pwrite)
        monkeypatch.setattr(OsDisk, "make_directory", limited_make_directory)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> FullDisk:
    return FullDisk(monkeypatch)


@pytest.fixture
def client(disk: FullDisk, tmp_path: Path) -> Iterator[WireClient]:
    with running_broker(tmp_path) as broker, broker.connect() as client:
        yield client
        disk.is_full = False


def topics_of(client: WireClient) -> dict[str, int]:
    """Returns the number of partitions by topic."""
    response = client.request(MetadataRequest(None), 9)
    return {topic.name: len(topic.partitions) for topic in response.topics}


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EDQUOT, errno.EMFILE])
def test_a_produce_is_refused_and_records_stay_readable(
    client: WireClient, disk: FullDisk, error: int
) -> None:
    make_topic(client, "orders")
    produce_values(client, "orders", b"a")
    disk.error, disk.is_full = error, True
    for _ in range(3):
        assert send_batch(client, "orders", batch_of(b"refused")).error_code == STORAGE_ERROR
        assert values_in(fetch_partition(client, "orders")) == [b"a"]
    disk.is_full = False
    assert produce_values(client, "orders", b"b") == 1
    assert values_in(fetch_partition(client, "orders")) == [b"a", b"b"]


def test_a_failed_sync_is_recovered_when_there_is_room(
    client: WireClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The record is not acknowledged; the log is loaded again, and everything is there."""
    make_topic(client, "orders", configs={"flush.messages": "1"})
    produce_values(client, "orders", b"a")
    sync = os.fdatasync
    is_full = True

    def limited_sync(fd: int) -> None:
        if is_full and os.readlink(f"/proc/self/fd/{fd}").endswith(".log"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        sync(fd)

    monkeypatch.setattr(os, "fdatasync", limited_sync)
    assert send_batch(client, "orders", batch_of(b"b")).error_code == STORAGE_ERROR
    time.sleep(0.5)
    response = send_batch(client, "orders", batch_of(b"c"))
    assert response.error_code == STORAGE_ERROR
    is_full = False
    deadline = time.monotonic() + 60
    while send_batch(client, "orders", batch_of(b"d")).error_code:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert values_in(fetch_partition(client, "orders")) == [b"a", b"b", b"d"]


@pytest.mark.parametrize("version", [0, 5, 7])
def test_create_topics_reports_the_topics_that_were_not_created(
    client: WireClient, disk: FullDisk, version: int
) -> None:
    disk.full_for = lambda path: "/big-" in path and path.endswith("-3")
    topics = [CreatableTopic("small", 3, 1), CreatableTopic("big", 5, 1)]
    response = client.request(CreateTopicsRequest(topics, timeout_ms=5000), version)
    results = {result.name: result for result in response.topics}
    assert (results["small"].error_code, results["big"].error_code) == (0, STORAGE_ERROR)
    if version >= 1:
        assert "the logs of big could not be created" in results["big"].error_message
        assert "free space in" in results["big"].error_message
    assert topics_of(client) == {"small": 3}
    disk.full_for = lambda path: False
    make_topic(client, "big", 5)
    assert topics_of(client) == {"small": 3, "big": 5}
    for partition in range(5):
        assert produce_values(client, "big", b"a", partition=partition) == 0


def test_create_partitions_reports_what_was_not_created(client: WireClient, disk: FullDisk) -> None:
    make_topic(client, "small", 1)
    make_topic(client, "big", 1)
    produce_values(client, "big", b"a")
    disk.full_for = lambda path: "/big-" in path
    request = CreatePartitionsRequest(
        [CreatePartitionsTopic("small", 2, None), CreatePartitionsTopic("big", 4, None)],
        timeout_ms=5000,
    )
    results = {result.name: result for result in client.request(request, 3).results}
    assert (results["small"].error_code, results["big"].error_code) == (0, STORAGE_ERROR)
    assert "could not be created" in results["big"].error_message
    assert topics_of(client) == {"small": 2, "big": 1}
    assert values_in(fetch_partition(client, "big")) == [b"a"]
    disk.full_for = lambda path: False
    request = CreatePartitionsRequest([CreatePartitionsTopic("big", 4, None)], timeout_ms=5000)
    assert client.request(request, 3).results[0].error_code == 0
    assert produce_values(client, "big", b"b", partition=3) == 0


def test_a_topic_that_cannot_be_created_automatically(client: WireClient, disk: FullDisk) -> None:
    disk.is_full = True
    request = MetadataRequest([MetadataRequestTopic(name="auto")], allow_auto_topic_creation=True)
    assert client.request(request, 9).topics[0].error_code != 0
    disk.is_full = False
    client.request(request, 9)
    assert produce_values(client, "auto", b"a") == 0


def test_a_full_log_directory_leaves_the_new_log_to_another(disk: FullDisk, tmp_path: Path) -> None:
    directories = [str(tmp_path / name) for name in ("a", "b")]
    with (
        running_broker(tmp_path, {"log.dirs": ",".join(directories)}) as broker,
        broker.connect() as client,
    ):
        disk.full_for = lambda path: path.startswith(directories[0])
        make_topic(client, "t", 6)
        assert broker.call(lambda inside: [len(log_dir.logs) for log_dir in inside.logs.dirs]) == [
            0,
            6,
        ]
        disk.full_for = lambda path: False
        make_topic(client, "u", 6)
        assert broker.call(lambda inside: [len(log_dir.logs) for log_dir in inside.logs.dirs]) == [
            6,
            6,
        ]
