"""Kafka's tools read the same records from our coordinator logs as from Kafka's (S1).

The same groups and transactions run on Kafka's broker and on ours. Then the console consumer reads
`__consumer_offsets` and `__transaction_state` with Kafka's formatters, and DumpLogSegments reads
their files, record by record.
"""

import re
from collections.abc import Iterable, Mapping
from contextlib import closing
from pathlib import Path

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka import admin as confluent_admin
from confluent_kafka.cimpl import NewTopic

from tests.support.broker.process import PenstockBroker
from tests.support.kafka.broker import KafkaBroker, KafkaParts, wait_until
from tests.support.kafka.once import once_per_run
from tests.support.kafka.tools import KafkaTools, Shell

pytestmark = pytest.mark.long

SETTINGS = {
    "node.id": "1",
    "log.index.size.max.bytes": "65536",
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "200",
}
RECORDS = 6
GROUPS, TRANSACTIONS = "__consumer_offsets", "__transaction_state"
FORMATTERS = {
    "OffsetsMessageFormatter": GROUPS,
    "GroupMetadataMessageFormatter": GROUPS,
    "TransactionLogMessageFormatter": TRANSACTIONS,
}
DECODERS = {"--offsets-decoder": GROUPS, "--transaction-log-decoder": TRANSACTIONS}
PERFORMANCE = (
    *("--topic", "one", "--num-records", "2", "--record-size", "5", "--throughput", "-1"),
    *("--transactional-id", "of-java", "--transaction-duration-ms", "60000"),
)
"""A transaction of the Java client, which ends transactions with KIP-890, unlike librdkafka."""

Readings = Mapping[str, list[str]]
"""The lines that were read, by formatter or decoder."""


CHANGING = (
    (r"\b1[789]\d{11}\b", "TIME"),
    (r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "UUID"),
    (r'"(memberId|topicId)":"[^"]{22}"', r'"\1":"ID"'),
    (r'"metadataHash":-?\d+', '"metadataHash":HASH'),  # it covers the id of the topic
)


@pytest.fixture(scope="session")
def readings(
    kafka_parts: KafkaParts, tools: KafkaTools, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Readings, Readings]:
    """The readings of Kafka's logs and of ours."""

    def read_both(directory: Path) -> tuple[Readings, Readings]:
        with KafkaBroker(kafka_parts, directory / "kafka", SETTINGS) as kafka:
            theirs = _readings(tools, kafka)
        with PenstockBroker(directory / "penstock", SETTINGS) as penstock:
            ours = _readings(tools, penstock)
        return theirs, ours

    return once_per_run(tmp_path_factory, "coordinator-logs", read_both)


def _readings(tools: KafkaTools, broker: KafkaBroker | PenstockBroker) -> Readings:
    shell = Shell(tools, broker.bootstrap)
    _take_part(broker.bootstrap)
    shell("producer-perf-test", *PERFORMANCE)
    result = {name: _formatted(shell, topic, name) for name, topic in FORMATTERS.items()}
    broker.stop()
    for option, topic in DECODERS.items():
        [log] = broker.partition_directory(topic, 0).glob("*.log")
        dumped = tools.run("dump-log", option, "--files", str(log))
        assert (dumped.exit, dumped.err) == (0, "")
        result[option] = _stable(re.findall(r"(?m)^\| offset: .*? (key: .*|endTxn.*)", dumped.out))
    return result


def _formatted(shell: Shell, topic: str, formatter: str) -> list[str]:
    all_of = ("--topic", topic, "--partition", "0", "--offset", "earliest", "--timeout-ms", "500")
    chosen = ("--formatter", f"org.apache.kafka.tools.consumer.{formatter}")
    run = shell("console-consumer", *all_of, *chosen)
    assert "Processed a total of" in run.err
    return _stable(run.out.strip().replace("}{", "}\n{").splitlines())


def _stable(lines: Iterable[str]) -> list[str]:
    """Removes values that differ between runs, and sorts by transactional id."""
    result = []
    for line in lines:
        for pattern, replacement in CHANGING:
            line = re.sub(pattern, replacement, line)
        result.append(line)
    return sorted(result, key=lambda line: re.findall(r'"transactionalId":"(.*?)"', line))


def _take_part(bootstrap: str) -> None:
    """Runs groups of every type, and transactions that commit and abort."""
    admin = confluent_admin.AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.create_topics([NewTopic("t", 2, 1), NewTopic("one", 1, 1)]).values():
        future.result(20)
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(2 * RECORDS):
        producer.produce("t", b"value", partition=number % 2)
    assert producer.flush(20) == 0
    for protocol in ("classic", "consumer"):
        with closing(_consumer(bootstrap, protocol, protocol)) as consumer:
            consumer.subscribe(["t"])
            wait_until(lambda: _owns_both(consumer), f"an assignment of {protocol}")
            _transact(bootstrap, f"of-{protocol}", consumer)
            for offset in (1, 2):
                consumer.commit(offsets=[TopicPartition("t", 0, offset)], asynchronous=False)
    for group in ("offsets-only", "deleted"):
        offsets = ConsumerGroupTopicPartitions(group, [TopicPartition("t", 1, 5, "note")])
        admin.alter_consumer_group_offsets([offsets])[group].result(20)
    admin.delete_consumer_groups(["deleted"])["deleted"].result(20)


def _consumer(bootstrap: str, group: str, protocol: str) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "client.id": f"reader-of-{group}",
            "group.protocol": protocol,
            "enable.auto.commit": False,
        }
    )


def _owns_both(consumer: Consumer) -> bool:
    assert consumer.poll(0.05) is None
    return len(consumer.assignment()) == 2


def _transact(bootstrap: str, transactional_id: str, consumer: Consumer) -> None:
    """Runs one transaction that commits, with offsets, and one that aborts."""
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": transactional_id})
    producer.init_transactions(20)
    for commit in (True, False):
        producer.begin_transaction()
        producer.produce("t", b"in a transaction", partition=0)
        assert producer.flush(20) == 0
        read = [TopicPartition("t", 1, 4)]
        producer.send_offsets_to_transaction(read, consumer.consumer_group_metadata(), 20)
        if commit:
            producer.commit_transaction(20)
        else:
            producer.abort_transaction(20)
        consumer.committed(read, timeout=20)  # which waits for the marker


@pytest.mark.parametrize("name", [*FORMATTERS, *DECODERS])
def test_kafka_reads_the_same_records_as_from_its_own_logs(
    readings: tuple[Readings, Readings], name: str
) -> None:
    """C2, C3, P4: every record of groups, offsets and transactions."""
    theirs, ours = (reading[name] for reading in readings)
    assert ours == theirs


def test_every_kind_of_record_was_read(readings: tuple[Readings, Readings]) -> None:
    """Otherwise the comparison would not be meaningful."""
    theirs, _ = readings
    kinds = re.findall(r'key: {"type":"(\d+)"', "\n".join(theirs["--offsets-decoder"]))
    assert {int(kind) for kind in kinds} == {1, 2, 3, 5, 6, 7, 8}
    states = re.findall(r'"transactionStatus":(\d)', "\n".join(theirs["--transaction-log-decoder"]))
    assert {int(state) for state in states} == {0, 1, 2, 3, 4, 5}
    for name in FORMATTERS:
        assert len(theirs[name]) > 3
