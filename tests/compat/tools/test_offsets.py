"""kafka-get-offsets.sh and kafka-delete-records.sh against our broker (M4)."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.support.kafka.tools import Shell

TIMES = (1_700_000_000_000, 1_700_000_000_500, 1_700_000_000_200)
"""The timestamps of the records of partition 0; partition 1 has none."""


@pytest.fixture
def topic(shell: Shell, name: str) -> str:
    shell("topics", "--create", "--topic", name, "--partitions", "2", "--config", "retention.ms=-1")
    producer = Producer({"bootstrap.servers": shell.bootstrap})
    for time in TIMES:
        producer.produce(name, b"value", partition=0, timestamp=time)
    producer.flush()
    return name


@pytest.mark.parametrize(
    ("time", "offsets"),
    [
        ("-1", (3, 0)),
        ("-2", (0, 0)),
        ("-3", (1, None)),
        ("-4", (0, 0)),
        ("-5", (None, None)),
        ("latest", (3, 0)),
        ("max-timestamp", (1, None)),
        (str(TIMES[0]), (0, None)),
        (str(TIMES[0] + 1), (1, None)),
        (str(TIMES[1] + 1), (None, None)),
    ],
)
def test_offsets_are_looked_up_by_timestamp(
    shell: Shell, topic: str, time: str, offsets: Sequence[int | None]
) -> None:
    """M3, C5: special values and timestamps; partitions without such a record are omitted."""
    assert shell("get-offsets", "--topic", topic, "--time", time).lines == [
        f"{topic}:{partition}:{offset}"
        for partition, offset in enumerate(offsets)
        if offset is not None
    ]


def test_offsets_of_selected_partitions_are_printed(shell: Shell, topic: str) -> None:
    assert shell("get-offsets", "--topic-partitions", f"{topic}:1").lines == [f"{topic}:1:0"]
    listed = shell("get-offsets", "--exclude-internal-topics").lines
    assert f"{topic}:0:3" in listed
    assert not [line for line in listed if line.startswith("__")]
    missing = shell.attempt("get-offsets", "--topic", "missing")
    assert missing.exit == 1
    assert "Could not match any topic-partitions" in missing.err


def test_records_are_deleted(shell: Shell, topic: str, tmp_path: Path) -> None:
    """S4: up to an offset, and up to the high watermark (-1)."""
    assert _delete(shell, tmp_path, topic, {0: 2}) == [f"partition: {topic}-0\tlow_watermark: 2"]
    assert shell("get-offsets", "--topic", topic, "--time", "-2").lines == [
        f"{topic}:0:2",
        f"{topic}:1:0",
    ]
    read = ("console-consumer", "--topic", topic, "--partition", "0", "--offset", "earliest")
    assert shell(*read, "--max-messages", "1").lines == ["value"]
    assert sorted(_delete(shell, tmp_path, topic, {0: -1, 1: -1})) == [
        f"partition: {topic}-0\tlow_watermark: 3",
        f"partition: {topic}-1\tlow_watermark: 0",
    ]


def test_deleting_beyond_the_high_watermark_is_an_error(
    shell: Shell, topic: str, tmp_path: Path
) -> None:
    [line] = _delete(shell, tmp_path, topic, {0: 100})
    assert line.startswith(f"partition: {topic}-0\terror: ")
    assert "OffsetOutOfRangeException" in line


def _delete(shell: Shell, directory: Path, topic: str, offsets: dict[int, int]) -> list[str]:
    """Returns the tool's output for each partition."""
    partitions = [
        {"topic": topic, "partition": partition, "offset": offset}
        for partition, offset in offsets.items()
    ]
    offsets_file = directory / "delete.json"
    offsets_file.write_text(json.dumps({"partitions": partitions, "version": 1}))
    first, second, *lines = shell("delete-records", "--offset-json-file", str(offsets_file)).lines
    assert first == "Executing records delete operation"
    assert second == "Records delete operation completed:"
    return lines
