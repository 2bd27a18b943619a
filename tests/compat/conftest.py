"""Fixtures of the tests that run beside a real Apache Kafka."""

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from penstock.core.ids import TopicPartition
from tests.support.kafka.broker import KafkaParts, MissingPartError
from tests.support.kafka.log_exchange import (
    GivenBack,
    compaction_inputs,
    serve_after_clean_stop,
    serve_after_crash,
    without_indexes,
    write_on,
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
    """Topics of every kind that a real broker wrote and then stopped."""
    return once_per_run(
        tmp_path_factory, "kafka-written", lambda folder: write_kafka_logs(kafka_parts, folder)
    )


@pytest.fixture(scope="session")
def old_format_logs(
    kafka_parts: KafkaParts, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, list[WrittenRecord]]:
    """A folder with v0 and v1 segments that Kafka's code wrote, and the records in them."""
    return once_per_run(
        tmp_path_factory,
        "kafka-old-formats",
        lambda folder: (folder, write_old_formats(kafka_parts, folder)),
    )


@pytest.fixture(scope="session")
def penstock_written_logs(tmp_path_factory: pytest.TempPathFactory) -> PenstockWrittenLogs:
    """Topics of every kind that we wrote."""
    return once_per_run(tmp_path_factory, "penstock-written", write_penstock_logs)


@pytest.fixture(scope="session")
def given_back(
    kafka_written_logs: KafkaWrittenLogs, tmp_path_factory: pytest.TempPathFactory
) -> Mapping[bool, GivenBack]:
    """Logs of Kafka's that we wrote on: after a clean stop of Kafka's (False), and a crash."""
    return once_per_run(
        tmp_path_factory,
        "given-back",
        lambda folder: {
            crashed: write_on(kafka_written_logs, folder / str(crashed), crashed=crashed)
            for crashed in (False, True)
        },
    )


@pytest.fixture(scope="session")
def to_clean(
    penstock_written_logs: PenstockWrittenLogs, kafka_written_logs: KafkaWrittenLogs
) -> Mapping[TopicPartition, Path]:
    """Logs that Kafka compacts while it serves them, by the names that they have there."""
    return compaction_inputs(penstock_written_logs, kafka_written_logs)


@pytest.fixture(scope="session")
def to_rebuild(
    kafka_written_logs: KafkaWrittenLogs,
    old_format_logs: tuple[Path, list[WrittenRecord]],
    tmp_path_factory: pytest.TempPathFactory,
) -> Mapping[str, Path]:
    """Logs without indexes, which Kafka rebuilds, by the names of their topics there."""
    return once_per_run(
        tmp_path_factory,
        "without-indexes",
        lambda folder: without_indexes(kafka_written_logs, old_format_logs[0], folder),
    )


@pytest.fixture(scope="session")
def exchanged(
    kafka_parts: KafkaParts,
    penstock_written_logs: PenstockWrittenLogs,
    kafka_written_logs: KafkaWrittenLogs,
    given_back: Mapping[bool, GivenBack],
    to_clean: Mapping[TopicPartition, Path],
    to_rebuild: Mapping[str, Path],
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[ServedLogs, ServedLogs]:
    """What `served` and `recovered` are, from two brokers at once: most of it is waiting."""

    def serve(folder: Path) -> tuple[ServedLogs, ServedLogs]:
        with ThreadPoolExecutor(2) as pool:
            clean = pool.submit(
                serve_after_clean_stop,
                kafka_parts,
                folder / "served",
                penstock_written_logs,
                kafka_written_logs,
                given_back[False],
                to_clean,
            )
            crashed = pool.submit(
                serve_after_crash,
                kafka_parts,
                folder / "recovered",
                penstock_written_logs,
                kafka_written_logs,
                given_back[True],
                {TopicPartition(topic, 0): path for topic, path in to_rebuild.items()},
            )
            return clean.result(), crashed.result()

    return once_per_run(tmp_path_factory, "exchanged", serve)


@pytest.fixture(scope="session")
def served(exchanged: tuple[ServedLogs, ServedLogs]) -> ServedLogs:
    """What Kafka made of our logs, and of its own after us, when all were closed cleanly."""
    return exchanged[0]


@pytest.fixture(scope="session")
def recovered(exchanged: tuple[ServedLogs, ServedLogs]) -> ServedLogs:
    """What Kafka made of our logs after a crash of ours, and of others that it must recover."""
    return exchanged[1]
