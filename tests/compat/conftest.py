"""Fixtures of the tests that run beside a real Apache Kafka."""

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from penstock.core.ids import TopicPartition
from tests.support.kafka.broker import KafkaParts, MissingPartError
from tests.support.kafka.log_exchange import (
    ContinuedLogs,
    compaction_inputs,
    continue_logs,
    serve_after_clean_stop,
    serve_after_crash,
    without_indexes,
)
from tests.support.kafka.logs import (
    KafkaWrittenLogs,
    ServedLogs,
    WrittenRecord,
    write_kafka_logs,
    write_old_formats,
)
from tests.support.kafka.once import once_per_run
from tests.support.kafka.penstock_logs import PenstockWrittenLogs, write_penstock_logs


@pytest.fixture(scope="session")
def kafka_parts() -> KafkaParts:
    try:
        return KafkaParts.find()
    except MissingPartError as missing:
        pytest.fail(str(missing), pytrace=False)


@pytest.fixture(scope="session")
def kafka_written_logs(
    kafka_parts: KafkaParts, tmp_path_factory: pytest.TempPathFactory
) -> KafkaWrittenLogs:
    """Topics of every kind, written by a real broker that was then stopped."""
    return once_per_run(
        tmp_path_factory,
        "kafka-written",
        lambda directory: write_kafka_logs(kafka_parts, directory),
    )


@pytest.fixture(scope="session")
def old_format_logs(
    kafka_parts: KafkaParts, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, list[WrittenRecord]]:
    """A directory with v0 and v1 segments written by Kafka's code, and their records."""
    return once_per_run(
        tmp_path_factory,
        "kafka-old-formats",
        lambda directory: (directory, write_old_formats(kafka_parts, directory)),
    )


@pytest.fixture(scope="session")
def penstock_written_logs(tmp_path_factory: pytest.TempPathFactory) -> PenstockWrittenLogs:
    """Topics of every kind, written by Penstock."""
    return once_per_run(tmp_path_factory, "penstock-written", write_penstock_logs)


@pytest.fixture(scope="session")
def continued_logs(
    kafka_written_logs: KafkaWrittenLogs, tmp_path_factory: pytest.TempPathFactory
) -> Mapping[bool, ContinuedLogs]:
    """Kafka's logs with records appended by us: after a clean stop (False) and a crash (True)."""
    return once_per_run(
        tmp_path_factory,
        "continued-logs",
        lambda directory: {
            crashed: continue_logs(kafka_written_logs, directory / str(crashed), crashed=crashed)
            for crashed in (False, True)
        },
    )


@pytest.fixture(scope="session")
def to_clean(
    penstock_written_logs: PenstockWrittenLogs, kafka_written_logs: KafkaWrittenLogs
) -> Mapping[TopicPartition, Path]:
    """Logs that Kafka compacts while it serves them, by their topic names on that broker."""
    return compaction_inputs(penstock_written_logs, kafka_written_logs)


@pytest.fixture(scope="session")
def to_rebuild(
    kafka_written_logs: KafkaWrittenLogs,
    old_format_logs: tuple[Path, list[WrittenRecord]],
    tmp_path_factory: pytest.TempPathFactory,
) -> Mapping[str, Path]:
    """Logs without indexes, which Kafka rebuilds, by their topic names on that broker."""
    return once_per_run(
        tmp_path_factory,
        "without-indexes",
        lambda directory: without_indexes(kafka_written_logs, old_format_logs[0], directory),
    )


@pytest.fixture(scope="session")
def exchanged(
    kafka_parts: KafkaParts,
    penstock_written_logs: PenstockWrittenLogs,
    kafka_written_logs: KafkaWrittenLogs,
    continued_logs: Mapping[bool, ContinuedLogs],
    to_clean: Mapping[TopicPartition, Path],
    to_rebuild: Mapping[str, Path],
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[ServedLogs, ServedLogs]:
    """The values of `served` and `recovered`; the two brokers run concurrently to save time."""

    def serve(directory: Path) -> tuple[ServedLogs, ServedLogs]:
        with ThreadPoolExecutor(2) as pool:
            clean = pool.submit(
                serve_after_clean_stop,
                kafka_parts,
                directory / "served",
                penstock_written_logs,
                kafka_written_logs,
                continued_logs[False],
                to_clean,
            )
            crashed = pool.submit(
                serve_after_crash,
                kafka_parts,
                directory / "recovered",
                penstock_written_logs,
                kafka_written_logs,
                continued_logs[True],
                {TopicPartition(topic, 0): path for topic, path in to_rebuild.items()},
            )
            return clean.result(), crashed.result()

    return once_per_run(tmp_path_factory, "exchanged", serve)


@pytest.fixture(scope="session")
def served(exchanged: tuple[ServedLogs, ServedLogs]) -> ServedLogs:
    """How Kafka serves our logs, and its own logs after us, when all were closed cleanly."""
    return exchanged[0]


@pytest.fixture(scope="session")
def recovered(exchanged: tuple[ServedLogs, ServedLogs]) -> ServedLogs:
    """How Kafka serves our logs after a crash, and other logs that it must recover."""
    return exchanged[1]
