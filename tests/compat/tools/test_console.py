"""kafka-console-producer.sh and kafka-console-consumer.sh against our broker (M4)."""

import re

import pytest

from tests.support.kafka.tools import Shell

PARSE = (
    *("--reader-property", "parse.key=true", "--reader-property", "parse.headers=true"),
    *("--reader-property", "null.marker=NULL"),
)
PRINT = tuple(
    option
    for field in ("timestamp", "partition", "offset", "headers", "key", "value")
    for option in ("--formatter-property", f"print.{field}=true")
)
INPUT = "h1:v1,h2:v2\tk1\tone\nh1:x\tk2\ttwo\nNULL\tNULL\tthree\nh3:y\tk1\tNULL\n"
PROPERTIES = "--command-property"


@pytest.fixture
def topic(shell: Shell, name: str) -> str:
    shell("topics", "--create", "--topic", name, "--partitions", "1")
    return name


@pytest.fixture
def filled(shell: Shell, topic: str) -> str:
    """A topic of one partition with the records of `GIVEN`."""
    assert shell("console-producer", "--topic", topic, *PARSE, stdin=INPUT).text == ""
    return topic


def test_keys_headers_timestamps_and_nulls_are_printed(shell: Shell, filled: str) -> None:
    read = shell(
        "console-consumer", "--topic", filled, "--from-beginning", "--max-messages", "4", *PRINT
    )
    assert [re.sub(r"^CreateTime:\d{13}\t", "", line) for line in read.lines] == [
        "Partition:0\tOffset:0\th1:v1,h2:v2\tk1\tone",
        "Partition:0\tOffset:1\th1:x\tk2\ttwo",
        "Partition:0\tOffset:2\tNO_HEADERS\tnull\tthree",
        "Partition:0\tOffset:3\th3:y\tk1\tnull",
    ]
    assert all(line.startswith("CreateTime:") for line in read.lines)
    assert "Processed a total of 4 messages" in read.err


def test_the_broker_sets_the_append_time(shell: Shell, topic: str) -> None:
    setting = "message.timestamp.type=LogAppendTime"
    shell("configs", "--alter", "--topic", topic, "--add-config", setting)
    shell("console-producer", "--topic", topic, stdin="now\n")
    read = shell(
        "console-consumer", "--topic", topic, "--from-beginning", "--max-messages", "1", *PRINT
    )
    assert re.fullmatch(r"LogAppendTime:\d{13}\tPartition:0\t.*\tnow", read.lines[0])


def test_one_partition_is_read_from_an_offset(shell: Shell, filled: str) -> None:
    consume = ("console-consumer", "--topic", filled, "--partition", "0")
    assert shell(*consume, "--offset", "2", "--max-messages", "2").lines == ["three", "null"]
    assert shell(*consume, "--offset", "earliest", "--max-messages", "1").lines == ["one"]
    late = shell(*consume, "--offset", "latest", "--timeout-ms", "300")
    assert (late.lines, "Processed a total of 0 messages" in late.err) == ([], True)


def test_a_group_resumes_at_its_committed_offsets(shell: Shell, filled: str, name: str) -> None:
    """C3: the second consumer does not read records that the first committed."""
    consume = ("console-consumer", "--topic", filled, "--group", name, "--max-messages")
    assert shell(*consume, "3", "--from-beginning").lines == ["one", "two", "three"]
    assert shell(*consume, "1").lines == ["null"]


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_each_codec_is_written_and_read(shell: Shell, topic: str, codec: str) -> None:
    """P6."""
    produce = ("console-producer", "--topic", topic, "--compression-codec", codec)
    assert shell(*produce, stdin="a\nb\nc\n").text == ""
    consume = ("console-consumer", "--topic", topic, "--from-beginning", "--max-messages", "3")
    assert shell(*consume).lines == ["a", "b", "c"]


@pytest.mark.parametrize(
    "options",
    [
        (PROPERTIES, "acks=1", PROPERTIES, "enable.idempotence=false"),
        (PROPERTIES, "acks=0", PROPERTIES, "enable.idempotence=false"),
        (PROPERTIES, "acks=all"),
        ("--sync",),
    ],
)
def test_records_are_written_with_each_acks(
    shell: Shell, topic: str, options: tuple[str, ...]
) -> None:
    """P2."""
    assert shell("console-producer", "--topic", topic, *options, stdin="a\n").text == ""
    consume = ("console-consumer", "--topic", topic, "--from-beginning", "--max-messages", "1")
    assert shell(*consume).lines == ["a"]


def test_a_pattern_subscription_reads_committed_records(shell: Shell, filled: str) -> None:
    consume = ("console-consumer", "--include", f"{filled[:-1]}.", "--from-beginning")
    committed = ("--isolation-level", "read_committed", "--max-messages", "4")
    assert shell(*consume, *committed).lines == ["one", "two", "three", "null"]


def test_a_topic_is_created_by_the_first_record(shell: Shell, name: str) -> None:
    shell("console-producer", "--topic", name, stdin="a\n")
    assert "PartitionCount: 2" in shell("topics", "--describe", "--topic", name).out


def test_the_consumer_group_protocol(shell: Shell, filled: str) -> None:
    """C3: KIP-848."""
    read = shell(
        *("console-consumer", "--topic", filled, "--from-beginning", "--max-messages", "1"),
        *(PROPERTIES, "group.protocol=consumer"),
    )
    assert len(read.lines) == 1
    assert "Processed a total of 1 messages" in read.err
