"""Restarts after a clean stop, after a kill and with foreign log directories.

A broker that is killed runs in its own process (S1, S7, P3, C2).
"""

import os
import shutil
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from penstock.core.errors import ErrorCode
from penstock.protocol.messages.find_coordinator import FindCoordinatorRequest
from penstock.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from penstock.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from penstock.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from tests.support.broker.faults import watching
from tests.support.broker.in_process import WireClient, running_broker
from tests.support.broker.process import PenstockBroker
from tests.support.coordinator.transaction_client import TxnProducer
from tests.support.protocol.admin import TOPIC, alter, describe
from tests.support.protocol.requests import (
    batch_of,
    fetch_partition,
    fetch_request,
    make_topic,
    new_producer,
    produce_values,
    receive_response,
    send_batch,
    values_in,
)


def connect(broker: PenstockBroker) -> WireClient:
    host, port = broker.bootstrap.rsplit(":", 1)
    return WireClient((host, int(port)))


def leader_epoch(client: WireClient, topic: str) -> int:
    response = client.request(MetadataRequest([MetadataRequestTopic(name=topic)]), 9)
    epoch: int = response.topics[0].partitions[0].leader_epoch
    return epoch


def test_topics_records_and_settings_survive_a_clean_stop(tmp_path: Path) -> None:
    with watching():
        with running_broker(tmp_path) as broker, broker.connect() as client:
            topic_id = make_topic(client, "t", 2, {"retention.ms": "-1"})
            produce_values(client, "t", b"a", b"b", partition=1)
            alter(client, TOPIC, "t", {"max.message.bytes": "2000"})
            epoch = leader_epoch(client, "t")
        assert (tmp_path / "data" / ".kafka_cleanshutdown").exists()
        with running_broker(tmp_path) as broker, broker.connect() as client:
            assert not (tmp_path / "data" / ".kafka_cleanshutdown").exists()
            (topic,) = client.request(MetadataRequest(None), 12).topics
            assert (topic.name, topic.topic_id, len(topic.partitions)) == ("t", topic_id, 2)
            assert leader_epoch(client, "t") > epoch
            assert values_in(fetch_partition(client, "t", partition=1)) == [b"a", b"b"]
            assert produce_values(client, "t", b"c", partition=1) == 2
            settings = describe(client, TOPIC, "t", ["retention.ms", "max.message.bytes"])
            assert {name: setting.value for name, setting in settings.items()} == {
                "retention.ms": "-1",
                "max.message.bytes": "2000",
            }
            large = send_batch(client, "t", batch_of(bytes(3000)))
            assert large.error_code == ErrorCode.MESSAGE_TOO_LARGE


def test_acknowledged_records_survive_a_kill(tmp_path: Path) -> None:
    """S7, P3: with flush.messages=1, every acknowledged record survives."""
    broker = PenstockBroker(tmp_path)
    acknowledged: list[bytes] = []
    with broker:
        with connect(broker) as client:
            make_topic(client, "t", configs={"flush.messages": "1", "retention.ms": "-1"})
            producer = new_producer(client)
            epoch = leader_epoch(client, "t")
            stop = threading.Event()

            def produce_records() -> None:
                with connect(broker) as connection:
                    while not stop.is_set():
                        value = b"%05d" % len(acknowledged)
                        now_ms = time.time_ns() // 1_000_000
                        batch = batch_of(
                            value, producer=(*producer, len(acknowledged)), timestamp=now_ms
                        )
                        try:
                            assert send_batch(connection, "t", batch).error_code == 0
                        except ConnectionError:
                            return
                        acknowledged.append(value)

            thread = threading.Thread(target=produce_records)
            thread.start()
            while len(acknowledged) < 50:
                time.sleep(0.002)
        broker.kill()
        stop.set()
        thread.join(10)
        assert not (broker.data / ".kafka_cleanshutdown").exists()
        broker.start()
        with connect(broker) as client:
            result = values_in(fetch_partition(client, "t"))
            assert result[: len(acknowledged)] == acknowledged
            assert len(result) - len(acknowledged) in (0, 1), "the one in flight"
            assert leader_epoch(client, "t") > epoch
            assert new_producer(client)[0] > producer[0]
            duplicate = batch_of(
                result[-1],
                producer=(*producer, len(result) - 1),
                timestamp=time.time_ns() // 1_000_000,
            )
            response = send_batch(client, "t", duplicate)
            assert (response.error_code, response.base_offset) == (0, len(result) - 1)
    assert "Traceback" not in broker.log.read_text()


def test_sigterm_under_load_is_a_clean_stop(tmp_path: Path) -> None:
    """The broker exits with 0, marks its log directories clean and keeps acknowledged records."""
    broker = PenstockBroker(tmp_path)
    counts = [0, 0, 0]
    with broker:
        with connect(broker) as client:
            make_topic(client, "t", 3)

        def produce_records(partition: int) -> None:
            with connect(broker) as connection:
                while True:
                    try:
                        response = send_batch(
                            connection, "t", batch_of(b"x" * 100), partition=partition
                        )
                    except (ConnectionError, TimeoutError):
                        return
                    assert response.error_code == 0
                    counts[partition] += 1

        threads = [threading.Thread(target=produce_records, args=(index,)) for index in range(3)]
        for thread in threads:
            thread.start()
        while min(counts) < 50:
            time.sleep(0.002)
        broker.stop()
        for thread in threads:
            thread.join(10)
        assert (broker.data / ".kafka_cleanshutdown").exists()
        broker.start()
        with connect(broker) as client:
            for partition, count in enumerate(counts):
                assert fetch_partition(client, "t", partition=partition).high_watermark >= count
    assert "Traceback" not in broker.log.read_text()


def test_long_polls_do_not_delay_the_stop(tmp_path: Path) -> None:
    """They get an empty response."""
    request = fetch_request({"t": {0: 0}}, max_wait_ms=15_000, min_bytes=1)

    def poll(client: WireClient) -> Any:
        with client:
            client.send(request, 11)
            return receive_response(client, request, 11)

    with ThreadPoolExecutor(1) as pool:
        with running_broker(tmp_path) as broker:
            with broker.connect() as client:
                make_topic(client, "t")
            polling = pool.submit(poll, broker.connect())
            while not broker.call(lambda inside: inside.replicas.find("t", 0).delayed_fetches):
                time.sleep(0.001)
            started = time.monotonic()
        assert time.monotonic() - started < 2
        assert polling.result().responses[0].partitions[0].error_code == 0


def test_the_log_directory_of_a_kafka_broker(tmp_path: Path) -> None:
    """S1: without a metadata store, topics are recovered from the log directories."""
    with running_broker(tmp_path) as broker, broker.connect() as client:
        topic_id = make_topic(client, "mine", 2)
        produce_values(client, "mine", b"a", partition=1)
        cluster_id = client.request(MetadataRequest([]), 9).cluster_id
    for file in (tmp_path / "data").glob("penstock-metadata.db*"):
        file.unlink()
    shutil.rmtree(tmp_path / "data" / "mine-0")
    with running_broker(tmp_path) as broker, broker.connect() as client:
        response = client.request(MetadataRequest(None), 12)
        (topic,) = response.topics
        assert response.cluster_id == cluster_id
        assert (topic.name, topic.topic_id, len(topic.partitions)) == ("mine", topic_id, 2)
        assert values_in(fetch_partition(client, "mine", partition=1)) == [b"a"]
        assert produce_values(client, "mine", b"b", partition=1) == 1
        assert produce_values(client, "mine", b"c", partition=0) == 0, "a missing log is recreated"
    with running_broker(tmp_path) as broker, broker.connect() as client:
        assert values_in(fetch_partition(client, "mine", partition=1)) == [b"a", b"b"]


def test_a_lost_metadata_store_costs_no_records(tmp_path: Path) -> None:
    """S3, P3: nothing is deleted without settings, no producer id is used again."""
    with running_broker(tmp_path) as broker, broker.connect() as client:
        make_topic(client, "compacted", configs={"cleanup.policy": "compact"})
        producer_id, epoch = new_producer(client)
        batch = batch_of(b"a", key=b"k", producer=(producer_id, epoch, 0))
        assert send_batch(client, "compacted", batch).error_code == 0
        transactional = TxnProducer.started(client, "t").producer_id
        assert transactional > producer_id
    for file in (tmp_path / "data").glob("penstock-metadata.db*"):
        file.unlink()
    with running_broker(tmp_path) as broker, broker.connect() as client:
        assert describe(client, TOPIC, "compacted")["cleanup.policy"].value == ""
        assert describe(client, TOPIC, "__transaction_state")["cleanup.policy"].value == "compact"
        assert new_producer(client)[0] > transactional


def test_stray_partition_directories_are_renamed(tmp_path: Path) -> None:
    """They are renamed, and a topic with that name can be created."""
    data = tmp_path / "data"
    with running_broker(tmp_path) as broker, broker.connect() as client:
        make_topic(client, "known")
        produce_values(client, "known", b"a")
    shutil.copytree(data / "known-0", data / "foreign-0")
    (data / "foreign-0" / "partition.metadata").unlink()
    with running_broker(tmp_path) as broker, broker.connect() as client:
        names = [topic.name for topic in client.request(MetadataRequest(None), 12).topics]
        assert names == ["known"]
        (stray,) = data.glob("*-stray")
        assert stray.name.startswith("foreign-0.")
        make_topic(client, "foreign")
        assert fetch_partition(client, "foreign").high_watermark == 0
        assert values_in(fetch_partition(client, "known")) == [b"a"]
    with running_broker(tmp_path) as broker, broker.connect() as client:
        assert values_in(fetch_partition(client, "known")) == [b"a"], (
            "the stray directory is ignored"
        )


def commit(client: WireClient, offset: int) -> ErrorCode:
    partition = OffsetCommitRequestPartition(0, offset, committed_metadata="m")
    request = OffsetCommitRequest(
        "g", topics=[OffsetCommitRequestTopic("t", partitions=[partition])]
    )
    return ErrorCode(client.request(request, 8).topics[0].partitions[0].error_code)


def committed(client: WireClient) -> tuple[int, str]:
    """Returns the committed offset of the group, once its coordinator is loaded."""
    request = OffsetFetchRequest("g", [OffsetFetchRequestTopic("t", [0])])
    while True:
        response = client.request(request, 7)
        if response.error_code == 0:
            (partition,) = response.topics[0].partitions
            return partition.committed_offset, partition.metadata
        assert response.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        time.sleep(0.01)


@pytest.mark.parametrize("clean", [True, False])
def test_committed_offsets_survive_a_restart(tmp_path: Path, clean: bool) -> None:
    """C2: a kill loses nothing that was passed to the operating system."""
    broker = PenstockBroker(tmp_path, {"offsets.topic.num.partitions": "3"})
    with broker:
        with connect(broker) as client:
            make_topic(client, "t")
            find = FindCoordinatorRequest("g")
            while client.request(find, 2).error_code:
                time.sleep(0.01)
            while (code := commit(client, 42)) is not ErrorCode.NONE:
                assert code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            assert commit(client, 43) is ErrorCode.NONE
        if clean:
            broker.stop()
        else:
            broker.kill()
        broker.start()
        with connect(broker) as client:
            assert committed(client) == (43, "m")
            assert commit(client, 44) is ErrorCode.NONE
            assert committed(client) == (44, "m")


def test_ctrl_c_is_a_clean_stop(tmp_path: Path) -> None:
    broker = PenstockBroker(tmp_path)
    with broker:
        os.kill(broker.pid, signal.SIGINT)
        broker.stop()
        assert (broker.data / ".kafka_cleanshutdown").exists()
        broker.start()
