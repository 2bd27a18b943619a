"""A metadata log of Kafka that was taken over is not taken for the current metadata (S1)."""

from pathlib import Path

import pytest

from penstock.broker.kraft.takeover import check_takeover, mark_takeover
from penstock.core.errors import KafkaStorageError


@pytest.fixture
def metadata_log(tmp_path: Path) -> Path:
    directory = tmp_path / "__cluster_metadata-0"
    directory.mkdir()
    (directory / f"{0:020d}.log").write_bytes(b"records")
    return directory


def test_a_log_is_taken_over_once(metadata_log: Path) -> None:
    check_takeover(metadata_log, is_new_store=True)
    check_takeover(metadata_log, is_new_store=False)
    mark_takeover(metadata_log)
    check_takeover(metadata_log, is_new_store=False)
    (metadata_log / "quorum-state").touch()
    with pytest.raises(KafkaStorageError, match="it is outdated: restore the store"):
        check_takeover(metadata_log, is_new_store=True)
    assert [path.name for path in metadata_log.parent.iterdir() if path != metadata_log] == [
        ".penstock_kafka_metadata"
    ]


def test_kafka_has_been_started_again(metadata_log: Path) -> None:
    mark_takeover(metadata_log)
    (metadata_log / f"{7:020d}-{1:010d}.checkpoint").write_bytes(b"snapshot")
    with pytest.raises(KafkaStorageError, match="use a new metadata store"):
        check_takeover(metadata_log, is_new_store=False)
    check_takeover(metadata_log, is_new_store=True)
    mark_takeover(metadata_log)
    check_takeover(metadata_log, is_new_store=False)
