"""Logs for dump tests, written with the real storage, and the dumps' results."""

from collections.abc import Sequence
from pathlib import Path

from penstock.cli.dump.items import Item
from penstock.cli.dump.paths import DEFAULTS, DumpOptions, dump
from penstock.core.ids import TopicPartition
from penstock.records.append_policy import AppendOrigin
from penstock.records.build import build_batch
from penstock.records.compress import Compression
from penstock.records.control import build_end_txn_marker
from penstock.records.record import Record
from penstock.storage.disk import OsDisk
from penstock.storage.log.log import Log
from penstock.storage.log.log_loader import load_log
from penstock.storage.log_config import LogConfig
from tests.support.clock import ManualClock

NOW_MS = 1_700_000_000_000
EPOCH = 5


class WrittenLog:
    """A partition's log that is written to and then closed."""

    def __init__(self, directory: Path, config: LogConfig, start_offset: int = 0) -> None:
        self.directory = directory
        self.clock = ManualClock(NOW_MS)
        self.log: Log = load_log(
            OsDisk(),
            str(directory),
            TopicPartition("orders", 0),
            config,
            self.clock,
            log_start_offset=start_offset,
        )

    def append(
        self,
        records: Sequence[Record],
        *,
        compression: Compression = Compression.NONE,
        producer_id: int = -1,
        base_sequence: int = -1,
        is_transactional: bool = False,
    ) -> None:
        """Appends one batch; the records' offsets count from 0."""
        batch = build_batch(
            records,
            compression=compression,
            producer_id=producer_id,
            producer_epoch=0 if producer_id >= 0 else -1,
            base_sequence=base_sequence,
            is_transactional=is_transactional,
        )
        self.log.append_as_leader(batch, EPOCH)
        self.log.update_high_watermark(self.log.log_end_offset)

    def append_values(self, *values: bytes) -> None:
        """Appends one batch of records without key, one millisecond after the last one."""
        self.clock.advance(1)
        now_ms = self.clock.now_ms()
        self.append([Record(n, now_ms, None, value) for n, value in enumerate(values)])

    def end_txn(self, producer_id: int, *, commit: bool, timestamp: int = NOW_MS) -> None:
        marker = build_end_txn_marker(
            commit,
            producer_id=producer_id,
            producer_epoch=0,
            coordinator_epoch=7,
            timestamp=timestamp,
        )
        self.log.append_as_leader(marker, EPOCH, origin=AppendOrigin.COORDINATOR)
        self.log.update_high_watermark(self.log.log_end_offset)

    def path(self, kind: str, base_offset: int = 0) -> Path:
        return self.directory / f"{base_offset:020d}{kind}"

    def close(self) -> None:
        self.log.close()


def dump_items(path: Path, options: DumpOptions = DEFAULTS) -> list[Item]:
    """Returns the result of a dump of one file."""
    return [item for _, item in dump([str(path)], options)]


def of_kind(items: list[Item], kind: str) -> list[dict[str, object]]:
    return [dict(item.fields) for item in items if item.kind == kind]
