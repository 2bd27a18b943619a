"""kafka-transactions.sh against our broker (M4, P4)."""

from collections.abc import Iterator
from contextlib import closing

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, Producer, TopicPartition

from penstock.records.build import build_batch
from penstock.records.record import Record
from tests.support.broker.in_process import WireClient
from tests.support.broker.process import start_broker
from tests.support.kafka.broker import wait_until
from tests.support.kafka.tools import KafkaTools, Shell
from tests.support.protocol.requests import NOW, produce_request

TIMEOUT_MS = 50_000
STATE = ("TransactionalId", "TransactionState")
DESCRIPTION = ("CoordinatorId", *STATE, "TransactionTimeoutMs", "TopicPartitions")
HANGING = ("Topic", "Partition", "ProducerId", "ProducerEpoch", "StartOffset")


@pytest.fixture
def topic(shell: Shell, name: str) -> str:
    shell("topics", "--create", "--topic", name, "--partitions", "2")
    return name


@pytest.fixture
def producer(shell: Shell, topic: str, name: str) -> Producer:
    """A producer with an open transaction of two records in partition 0 of the topic."""
    producer = Producer(
        {
            "bootstrap.servers": shell.bootstrap,
            "transactional.id": name,
            "transaction.timeout.ms": TIMEOUT_MS,
        }
    )
    producer.init_transactions(20)
    producer.begin_transaction()
    for number in range(2):
        producer.produce(topic, b"%d" % number, partition=0)
    assert producer.flush(20) == 0
    return producer


def _describe(shell: Shell, transactional_id: str) -> dict[str, str]:
    run = shell("transactions", "describe", "--transactional-id", transactional_id)
    head = run.lines[0].split()
    [row] = run.rows(*head)
    return dict(zip(head, row, strict=True))


def _starts(shell: Shell, topic: str) -> list[str]:
    """Returns the start offsets of the open transactions of partition 0."""
    run = shell("transactions", "describe-producers", "--topic", topic, "--partition", "0")
    return [start for [start] in run.rows("CurrentTransactionStartOffset")]


def _readable(shell: Shell, topic: str, isolation: str) -> int:
    """Returns the end offset of partition 0 for this isolation level."""
    settings = {"bootstrap.servers": shell.bootstrap, "group.id": "none"}
    with closing(Consumer({**settings, "isolation.level": isolation})) as consumer:
        _, end = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=20)
    return int(end)


def _values(shell: Shell, topic: str, count: int) -> list[bytes | str | None]:
    """Returns the first committed values of partition 0."""
    settings = {"bootstrap.servers": shell.bootstrap, "group.id": "none"}
    with closing(Consumer({**settings, "isolation.level": "read_committed"})) as consumer:
        consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
        return [message.value() for message in consumer.consume(count, timeout=20)]


def test_a_transaction_is_described_until_it_commits(
    shell: Shell, topic: str, producer: Producer, name: str
) -> None:
    assert [name, "Ongoing"] in shell("transactions", "list").rows(*STATE)
    ongoing = _describe(shell, name)
    assert [ongoing[column] for column in DESCRIPTION] == [
        *("1", name, "Ongoing", str(TIMEOUT_MS), f"{topic}-0")
    ]
    assert 0 <= int(ongoing["TransactionDurationMs"]) < TIMEOUT_MS
    assert _starts(shell, topic) == ["0"]

    producer.commit_transaction(20)  # its markers are written after the response
    wait_until(lambda: _starts(shell, topic) == ["None"], "the marker")
    wait_until(lambda: _describe(shell, name)[STATE[1]] == "CompleteCommit", "the end")
    assert [name, "CompleteCommit"] in shell("transactions", "list").rows(*STATE)
    ended = _describe(shell, name)
    assert [ended[column] for column in DESCRIPTION] == [
        *("1", name, "CompleteCommit", str(TIMEOUT_MS), "")
    ]
    for column in ("ProducerId", "CurrentTransactionStartTimeMs"):
        assert ended[column] == ongoing[column]


def test_transactions_are_filtered(shell: Shell, producer: Producer, name: str) -> None:
    def listed(*options: str) -> bool:
        return [name] in shell("transactions", "list", *options).rows(STATE[0])

    pattern = "--transactional-id-pattern"
    assert listed(pattern, f"{name[:-1]}.")
    assert not listed(pattern, f"{name}.")
    assert listed("--duration-filter", "0")
    assert not listed("--duration-filter", str(TIMEOUT_MS))
    invalid = shell.attempt("transactions", "list", pattern, "(")
    assert "INVALID_REGULAR_EXPRESSION" in invalid.text
    producer.abort_transaction(20)


def test_a_transaction_is_terminated(
    shell: Shell, topic: str, producer: Producer, name: str
) -> None:
    """Its producer is fenced, and its records are aborted."""
    before = _describe(shell, name)
    shell("transactions", "forceTerminateTransaction", "--transactionalId", name)
    after = _describe(shell, name)
    assert after["TransactionState"] == "Empty"
    assert after["ProducerId"] == before["ProducerId"]
    assert int(after["ProducerEpoch"]) > int(before["ProducerEpoch"])
    assert _starts(shell, topic) == ["None"]
    with pytest.raises(KafkaException, match="_FENCED"):
        producer.commit_transaction(20)
    plain = Producer({"bootstrap.servers": shell.bootstrap})
    plain.produce(topic, b"visible", partition=0)
    assert plain.flush(20) == 0
    assert _values(shell, topic, 1) == [b"visible"]


def test_a_transaction_is_aborted_at_one_partition(
    shell: Shell, topic: str, producer: Producer
) -> None:
    """P4: a marker written without the coordinator lets readers continue."""
    abort = ("transactions", "abort", "--topic", topic, "--partition", "0", "--start-offset")
    assert _readable(shell, topic, "read_committed") == 0
    missing = shell.attempt(*abort, "1")
    assert missing.exit == 1
    assert "Could not find any open transactions starting at offset 1" in missing.text
    shell(*abort, "0")
    assert _starts(shell, topic) == ["None"]
    assert _readable(shell, topic, "read_committed") == 3
    producer.abort_transaction(20)


def test_unknown_transactions_are_an_error(shell: Shell) -> None:
    unknown = shell.attempt("transactions", "describe", "--transactional-id", "missing")
    assert unknown.exit == 1
    assert "transactionalId `missing` failed because the ID could not be found" in unknown.text


@pytest.fixture
def careless_shell(tools: KafkaTools, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    """A broker that accepts transactional batches without verification."""
    settings = {"node.id": "1", "transaction.partition.verification.enable": "false"}
    with start_broker(tmp_path_factory.mktemp("careless"), settings) as running:
        yield Shell(tools, running.bootstrap)


def test_a_hanging_transaction_is_found_and_aborted(careless_shell: Shell) -> None:
    """P4: without verification, only this tool can end such a transaction."""
    shell = careless_shell
    shell("topics", "--create", "--topic", "t", "--partitions", "1")
    batch = build_batch(
        [Record(0, NOW, None, b"hanging")],
        producer_id=4711,
        producer_epoch=3,
        base_sequence=0,
        is_transactional=True,
    )
    host, port = shell.bootstrap.split(":")
    request = produce_request("t", bytes(batch))
    request.transactional_id = "nobody"
    with WireClient((host, int(port))) as client:
        response = client.request(request, 9).responses[0].partition_responses[0]
    assert response.error_code == 0

    find = ("transactions", "find-hanging", "--max-transaction-timeout", "0")
    for scope in (["--broker-id", "1"], ["--topic", "t"], ["--topic", "t", "--partition", "0"]):
        assert shell(*find, *scope).rows(*HANGING) == [["t", "0", "4711", "3", "0"]]
    shell("transactions", "abort", "--topic", "t", "--partition", "0", "--start-offset", "0")
    assert shell(*find, "--broker-id", "1").rows(*HANGING) == []
    assert _readable(shell, "t", "read_committed") == 2


def test_an_open_transaction_does_not_hang(shell: Shell, topic: str, producer: Producer) -> None:
    result = shell("transactions", "find-hanging", "--topic", topic)
    assert result.rows(*HANGING) == []
    at_once = ("transactions", "find-hanging", "--max-transaction-timeout", "0", "--topic", topic)
    assert shell(*at_once).rows(*HANGING) == []
    assert _starts(shell, topic) == ["0"]
    producer.abort_transaction(20)
