"""`penstock produce`, `consume` and `perf` at our broker (P1, C1, C2)."""

import base64
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from itertools import count
from pathlib import Path

import pytest

from penstock.cli.records import record_reader
from penstock.client.consumer.consumer import Consumer
from penstock.client.producer.producer import Producer
from penstock.core.ids import TopicPartition
from tests.support.broker.in_process import RunningBroker
from tests.support.client.cli import Cli
from tests.support.protocol.requests import make_topic

_numbers = count(1)
ALL = ("-e", "-f", r"%p %o %k=%s\n")


@pytest.fixture(scope="module")
def settings() -> Mapping[str, str]:
    return {
        "offsets.topic.num.partitions": "2",
        "transaction.state.log.num.partitions": "2",
        "auto.create.topics.enable": "false",
        "message.max.bytes": "5000",
        "group.initial.rebalance.delay.ms": "0",
        "log.retention.ms": "-1",
    }


@pytest.fixture(scope="module")
def cli(broker: RunningBroker) -> Cli:
    return Cli(broker.bootstrap_servers)


@pytest.fixture
def topic(broker: RunningBroker) -> str:
    """A topic of one partition."""
    name = f"topic-{next(_numbers)}"
    with broker.connect() as client:
        make_topic(client, name, 1)
    return name


@pytest.fixture
def producer(broker: RunningBroker) -> Iterator[Producer]:
    with Producer(bootstrap_servers=broker.bootstrap_servers, linger_ms=0) as new_producer:
        yield new_producer


# --- Producing


def test_lines_from_standard_input(cli: Cli, topic: str) -> None:
    output = cli("produce", topic, stdin="a\nb\n\nc").stdout
    assert output.startswith("4 records acknowledged (3 bytes in ")
    assert cli("consume", topic, "-e").stdout == "a\nb\n\nc\n"


def test_files_keys_and_headers(cli: Cli, topic: str, tmp_path: Path) -> None:
    first, second = tmp_path / "1", tmp_path / "2"
    first.write_bytes(b"k1:a|k2:b|")
    second.write_bytes(b"none|k3:c")
    cli(
        *("produce", topic, str(first), str(second), "-D", "|", "-K", ":", "--key-optional"),
        *("-H", "a=1", "-H", "b", "--timestamp", "1700000000000", "-z", "gzip"),
    )
    printed = cli("consume", topic, "-e", "-Z", "-f", r"%o %k=%s %h %T\n").stdout
    assert printed.splitlines() == [
        "0 k1=a a=1,b=NULL 1700000000000",
        "1 k2=b a=1,b=NULL 1700000000000",
        "2 NULL=none a=1,b=NULL 1700000000000",
        "3 k3=c a=1,b=NULL 1700000000000",
    ]


def test_whole_files_and_sizes(cli: Cli, topic: str, tmp_path: Path) -> None:
    whole, sized = tmp_path / "whole", tmp_path / "sized"
    whole.write_bytes(b"a\n\0b")
    sized.write_bytes(b"\0\0\0\x01k\xff\xff\xff\xff" + b"\0\0\0\0" + b"\0\0\0\x02xy")
    cli("produce", topic, str(whole), "-i", "files", "-k", "name")
    cli("produce", topic, str(sized), "-i", "sized-keys")
    stdout_bytes = cli("consume", topic, "-e", "-f", "%k/%K/%R%s;").stdout_bytes
    assert stdout_bytes == b"name/4/\0\0\0\x04a\n\0b;k/1/\xff\xff\xff\xff;/0/\0\0\0\x02xy;"


def test_json_is_copied_as_it_was(cli: Cli, broker: RunningBroker, topic: str) -> None:
    """Any bytes, null, headers and timestamps: there and back through JSON."""
    lines = [
        {"key": "k", "value": "v", "headers": [["a", "1"], ["a", None]], "timestamp": 5},
        {"key": None, "value": {"base64": base64.b64encode(b"\xff\0").decode()}, "timestamp": 6},
        {"key": "k", "value": None, "timestamp": 7},
    ]
    cli("produce", topic, "-i", "json", stdin="".join(json.dumps(line) + "\n" for line in lines))
    printed = cli("consume", topic, "-e", "--json").stdout
    result = [json.loads(line) for line in printed.splitlines()]
    assert [row["value"] for row in result] == ["v", {"base64": "/wA="}, None]
    assert [row["timestamp"] for row in result] == [5, 6, 7]
    copy = f"{topic}-copy"
    with broker.connect() as client:
        make_topic(client, copy, 1)
    cli("produce", copy, "-i", "json", stdin=printed)
    again = cli("consume", copy, "-e", "--json").stdout
    assert again == printed.replace(f'"{topic}"', f'"{copy}"')


def test_each_record_says_its_topic(cli: Cli, topic: str) -> None:
    cli("produce", "-", "-i", "json", stdin=json.dumps({"topic": topic, "value": 1}))
    assert cli("consume", topic, "-e").stdout == "1\n"
    error = cli.refused("produce", "-", "-i", "json", stdin='{"value": 1}')
    assert 'standard input, line 1 has no "topic"' in error
    assert "needs --input json" in cli.refused("produce", "-", stdin="a", status=2)


def test_partitions(cli: Cli, broker: RunningBroker) -> None:
    with broker.connect() as client:
        make_topic(client, "parted", 3)
    cli("produce", "parted", "-p", "2", stdin="two\n")
    cli("produce", "parted", "-i", "json", stdin='{"value": "one", "partition": 1}')
    assert cli("consume", "parted", "-e", "-p", "1-2", "-f", r"%p%s\n").stdout.split() in (
        ["1one", "2two"],
        ["2two", "1one"],
    )
    error = cli.refused("consume", "parted", "-p", "3", status=2)
    assert "there is no partition 3" in error


def test_a_count_and_json_of_the_result(cli: Cli, topic: str) -> None:
    result = json.loads(cli("produce", topic, "-c", "2", "--json", stdin="a\nb\nc\n").stdout)
    assert (result["acknowledged"], result["failed"], result["bytes"]) == (2, 0, 2)
    assert cli("consume", topic, "-e").stdout == "a\nb\n"


def test_a_topic_that_does_not_exist(cli: Cli) -> None:
    """E5"""
    error = cli.refused("produce", "no-such", "--timeout", "0.3", stdin="a\nb\n")
    assert "no-such" in error
    assert "UNKNOWN_TOPIC_OR_PARTITION" in error


@pytest.mark.parametrize("keep_going", [False, True])
def test_a_record_that_is_too_large(cli: Cli, topic: str, keep_going: bool) -> None:
    """E2: which line, and none is lost without a word. The broker refuses the batch it is in."""
    options = ["--keep-going"] if keep_going else []
    result = cli.attempt(
        *("produce", topic, "-X", "max.request.size=1000", "--json", *options),
        stdin=f"a\n{'x' * 2000}\nb\n",
    )
    assert result.exit_code == 1
    summary = json.loads(result.stdout)
    assert (summary["acknowledged"], summary["failed"]) == (2, 1)
    [failure] = summary["failures"]
    assert failure["where"] == "standard input, line 2"
    assert failure["error"] == "MESSAGE_TOO_LARGE"
    assert "max.request.size" in failure["message"]
    assert cli("consume", topic, "-e").stdout == "a\nb\n"


def test_records_that_the_broker_refuses(cli: Cli, topic: str, tmp_path: Path) -> None:
    """E2: counted one by one, and said for people too."""
    big = tmp_path / "big"
    big.write_bytes(b"x" * 6000)
    result = cli.attempt("produce", topic, str(big), "-i", "files")
    assert result.exit_code == 1
    assert result.stderr.startswith(f"penstock: {big}: ")
    assert "(MESSAGE_TOO_LARGE)" in result.stderr
    assert "0 records acknowledged, 1 failed" in result.stdout


def test_input_that_cannot_be_read(cli: Cli, topic: str) -> None:
    error = cli.refused("produce", topic, "-K", ":", stdin="k:v\nkv\n")
    assert "line 2 has no key separator" in error
    assert "nothing behind that was sent" in error
    assert "No such file" in cli.refused("produce", topic, "/no/such/file")


def test_a_transaction(cli: Cli, topic: str) -> None:
    """All of the input, or nothing (P6)."""
    cli("produce", topic, "--transactional-id", "tx", stdin="a\nb\n")
    result = cli.attempt(
        "produce", topic, "--transactional-id", "tx", "-i", "json", stdin='{"value":"c"}\n{}\n'
    )
    assert result.exit_code == 1
    assert "the transaction was aborted" in result.stdout
    cli("produce", topic, stdin="d\n")
    committed = ("consume", topic, "-e", "--isolation-level", "read_committed")
    assert cli(*committed).stdout == "a\nb\nd\n"
    assert cli("consume", topic, "-e", "-c", "2").stdout == "a\nb\n"


# --- Consuming


@pytest.fixture(scope="module")
def numbers(broker: RunningBroker) -> str:
    """Ten records with the timestamps 1000, 2000 …"""
    with broker.connect() as client:
        make_topic(client, "numbers", 1)
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        values = [str(number).encode() for number in range(10)]
        times = [1000 * number for number in range(1, 11)]
        producer.send_many("numbers", values, timestamps=times).result(20)
    return "numbers"


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ([], "0123456789"),
        (["-o", "end"], ""),
        (["-o", "7"], "789"),
        (["-o", "-2"], "89"),
        (["-o", "s@3000"], "23456789"),
        (["-o", "s@1970-01-01T00:00:09.5"], "9"),
        (["-o", "s@99999"], ""),
        (["-o", "s@2000", "-o", "e@5000"], "123"),
        (["-o", "beginning", "-c", "3"], "012"),
        (["-c", "0"], ""),
        (["-o", "3", "-c", "2"], "34"),
    ],
)
def test_where_it_begins_and_ends(
    cli: Cli, numbers: str, options: list[str], expected: str
) -> None:
    assert cli("consume", numbers, "-e", "-D", "", *options).stdout == expected


def test_an_end_by_time_needs_no_exit(cli: Cli, numbers: str) -> None:
    assert cli("consume", numbers, "-o", "e@4000", "-D", "").stdout == "012"


def test_idle_ends_it(cli: Cli, numbers: str) -> None:
    assert cli("consume", numbers, "-o", "end", "--idle", "0.05").stdout == ""


@pytest.mark.parametrize(
    ("options", "printed"),
    [
        (["--output", "hex"], "39\n"),
        (["--output", "base64", "-K", "="], "=OQ==\n"),
        (["-s", "value=b"], "57\n"),
        (["-s", "json"], "9\n"),
        (["-K", ",", "-Z"], "NULL,9\n"),
    ],
)
def test_shapes(cli: Cli, numbers: str, options: list[str], printed: str) -> None:
    assert cli("consume", numbers, "-e", "-o", "-1", *options).stdout == printed


def test_what_cannot_be_decoded_is_said(cli: Cli, topic: str) -> None:
    cli("produce", topic, stdin="1234\nx\n5678\n")
    result = cli.attempt("consume", topic, "-e", "-s", "value=int")
    assert result.exit_code == 1
    assert result.stdout.splitlines() == ["825373492", "892745528"]
    assert f"{topic}-0 at offset 1 cannot be printed" in result.stderr


@pytest.mark.parametrize(
    ("options", "error"),
    [
        (["-o", "stored"], "--group"),
        (["-o", "middle"], "beginning"),
        (["-f", "%x"], "%x"),
        (["-s", "avro"], "avro"),
        (["-f", "%s", "--json"], "choose one"),
        (["-G", "g", "-o", "5"], "reset-offsets"),
        (["-G", "g", "-p", "0"], "the group assigns"),
    ],
)
def test_what_makes_no_sense(cli: Cli, numbers: str, options: list[str], error: str) -> None:
    assert error in cli.refused("consume", numbers, *options, status=2)


def test_a_topic_that_is_not_there(cli: Cli) -> None:
    """E5"""
    error = cli.refused("consume", "no-such", "-e", "--timeout", "0.3")
    assert "UNKNOWN_TOPIC_OR_PARTITION" in error


def test_patterns(cli: Cli, broker: RunningBroker) -> None:
    with broker.connect() as client:
        for name in ("fish-1", "fish-2", "flesh-1"):
            make_topic(client, name, 1)
    for name in ("fish-1", "fish-2", "flesh-1"):
        cli("produce", name, stdin=f"{name}\n")
    result = cli("consume", "--pattern", "fish-.*", "-e").stdout.split()
    assert sorted(result) == ["fish-1", "fish-2"]


def test_a_group_goes_on_where_it_was(cli: Cli, broker: RunningBroker, topic: str) -> None:
    """Only what was printed is committed (C2)."""
    cli("produce", topic, stdin="a\nb\nc\n")
    assert cli("consume", topic, "-G", "readers", "-c", "2").stdout == "a\nb\n"
    assert cli("consume", topic, "-G", "readers", "-e", "--no-commit").stdout == "c\n"
    assert cli("consume", topic, "-G", "readers", "-e").stdout == "c\n"
    partition = TopicPartition(topic, 0)
    with Consumer(bootstrap_servers=broker.bootstrap_servers, group_id="readers") as consumer:
        committed = consumer.committed([partition])[partition]
    assert committed is not None
    assert committed.offset == 3
    assert cli("consume", topic, "-G", "readers", "-e").stdout == ""


@pytest.mark.parametrize(
    ("options", "expected"),
    [(["-e"], "0123456789"), (["-c", "7"], "0123456"), (["-e", "-o", "4", "-c", "5"], "45678")],
)
def test_very_many_are_printed_in_columns(
    cli: Cli, numbers: str, monkeypatch: pytest.MonkeyPatch, options: list[str], expected: str
) -> None:
    """From one poll to the next the way of reading changes; no record is lost or comes twice."""
    monkeypatch.setattr(record_reader, "_BULK_FROM", 2)
    monkeypatch.setattr(record_reader, "_POLL_RECORDS", 2)
    assert cli("consume", numbers, "-D", "", *options).stdout == expected


def test_a_pattern_that_is_none(cli: Cli) -> None:
    for options in ([], ["-G", "g"]):
        error = cli.refused("consume", "--pattern", "fish-(", *options, status=2)
        assert "not a regular expression" in error


# --- As a process: signals and pipes


def start(broker: RunningBroker, *arguments: str) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-m", "penstock", *arguments, "-b", broker.bootstrap_servers]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


@pytest.mark.parametrize(
    ("number", "options", "status"),
    [(signal.SIGINT, [], 0), (signal.SIGTERM, [], 0), (signal.SIGINT, ["-c", "50"], 130)],
)
def test_a_signal_ends_it_cleanly(
    broker: RunningBroker, numbers: str, number: int, options: list[str], status: int
) -> None:
    with start(broker, "consume", numbers, "-D", ".", *options) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.read(20) == b"0.1.2.3.4.5.6.7.8.9."
        process.send_signal(number)
        assert process.wait(60) == status
        assert process.stderr.read() == b""


def test_a_reader_that_has_seen_enough(broker: RunningBroker, topic: str) -> None:
    """A closed pipe is no error."""
    reading, writing = os.pipe()
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        producer.send_many(topic, [b"x" * 1000] * 500).result(20)
    command = [sys.executable, "-m", "penstock", "consume", topic, "-b", broker.bootstrap_servers]
    with subprocess.Popen(command, stdout=writing, stderr=subprocess.PIPE) as process:
        os.close(writing)
        assert os.read(reading, 3) == b"xxx"
        os.close(reading)
        assert process.stderr is not None
        assert process.stderr.read() == b""
        assert process.wait(60) == 0


def test_lines_are_sent_as_they_come(broker: RunningBroker, topic: str, cli: Cli) -> None:
    """A pipe that stays open keeps nothing back."""
    command = [sys.executable, "-m", "penstock", "produce", topic, "-b", broker.bootstrap_servers]
    with (
        subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        ) as process,
        Consumer(bootstrap_servers=broker.bootstrap_servers) as consumer,
    ):
        assert process.stdin is not None
        assert process.stdout is not None
        consumer.assign([(topic, 0)])
        consumer.seek(TopicPartition(topic, 0), 0)
        for line in (b"one", b"two"):
            process.stdin.write(line + b"\n")
            process.stdin.flush()
            [record] = consumer.poll(20)
            assert record.value == line
        process.stdin.close()
        assert process.stdout.read().startswith(b"2 records acknowledged")
        assert process.wait(60) == 0


@pytest.mark.parametrize(
    ("options", "stderr"),
    [
        ([], b"1 record acknowledged"),
        (["--transactional-id", "cut"], b"the transaction was aborted"),
    ],
)
def test_ctrl_c_while_producing(
    broker: RunningBroker, topic: str, options: list[str], stderr: bytes
) -> None:
    """What was sent is accounted for."""
    command = [sys.executable, "-m", "penstock", "produce", topic, *options]
    with (
        subprocess.Popen(
            [*command, "-b", broker.bootstrap_servers],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        ) as process,
        Consumer(bootstrap_servers=broker.bootstrap_servers) as consumer,
    ):
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        consumer.assign([(topic, 0)])
        consumer.seek(TopicPartition(topic, 0), 0)
        process.stdin.write(b"one\n")
        process.stdin.flush()
        assert len(consumer.poll(20)) == 1
        process.send_signal(signal.SIGINT)
        assert process.stdout.read().startswith(stderr)
        assert process.stderr.read() == b""
        assert process.wait(60) == 130


def test_following(broker: RunningBroker, topic: str, producer: Producer) -> None:
    """Records are printed as they come."""
    with start(broker, "consume", topic, "-c", "2") as process:
        assert process.stdout is not None
        for value in (b"first", b"second"):
            producer.send(topic, value).result(20)
            assert process.stdout.readline() == value + b"\n"
        assert process.wait(60) == 0


# --- Measuring


def test_perf(cli: Cli, topic: str, tmp_path: Path) -> None:
    sent = cli.json("perf", "produce", topic, "-n", "5000", "--size", "50")
    assert (sent["records"], sent["bytes"]) == (5000, 250_000)
    assert 0 < sent["latency_ms_p50"] <= sent["latency_ms_p99.9"] <= sent["latency_ms_max"]
    read = cli.json("perf", "consume", topic)
    assert (read["records"], read["bytes"]) == (5000, 250_000)
    assert read["records_per_second"] > 0
    payload = tmp_path / "payload"
    payload.write_text("ab\nabcd\n")
    paced = cli.json(
        "perf", "produce", topic, "-n", "3", "--bulk", "1", "--payload-file", str(payload)
    )
    assert paced["bytes"] == 8
    assert cli.json("perf", "latency", topic, "-n", "5")["records"] == 5


def test_perf_keeps_its_pace(cli: Cli, topic: str) -> None:
    sent = cli.json("perf", "produce", topic, "-n", "30", "--throughput", "100")
    assert sent["seconds"] >= 0.29


def test_perf_of_records_that_fail(cli: Cli, topic: str) -> None:
    error = cli.refused("perf", "produce", topic, "-n", "1", "--size", "6000")
    assert "MESSAGE_TOO_LARGE" in error


def test_perf_of_too_few_records(cli: Cli, topic: str) -> None:
    error = cli.refused("perf", "consume", topic, "-n", "10", "--idle", "0.1")
    assert "only 0 of 10 records arrived" in error
