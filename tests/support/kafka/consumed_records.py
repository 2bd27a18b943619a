"""The records and offsets that our log serves, in the form of Kafka's results."""

from collections.abc import Iterable, Iterator

from penstock.records.batch import BatchHeader
from penstock.records.read import read_records
from penstock.records.record import Record
from penstock.storage.index.transaction_index import AbortedTxn
from penstock.storage.log.log import Log
from penstock.storage.log.results import FetchIsolation
from penstock.storage.log.timestamp_search import offset_for_timestamp, offset_of_max_timestamp
from penstock.storage.segment.timestamp_scan import TimestampAndOffset
from tests.support.kafka.logs import FoundOffset, KafkaRecord, ServedPartition
from tests.support.storage.logs import batches_in

FETCH_BYTES = 20_000
TIMESTAMP_TYPES = ("CreateTime", "LogAppendTime")


def consume(log: Log, timestamps: Iterable[int] = ()) -> ServedPartition:
    """Reads the whole log under both isolation levels, and looks up these timestamps."""
    served = ServedPartition(
        first_offset=log.log_start_offset,
        high_watermark=log.high_watermark,
        last_stable_offset=log.last_stable_offset,
        max_timestamp=_found_offset(offset_of_max_timestamp(log)),
        offsets_for_timestamps={
            timestamp: _found_offset(offset_for_timestamp(log, timestamp))
            for timestamp in timestamps
        },
    )
    for header, records, _ in _fetch(log, FetchIsolation.HIGH_WATERMARK):
        if header.is_control:
            continue
        for record in records:
            served.uncommitted.append(KafkaRecord(*record))
            served.leader_epochs[record.offset] = header.partition_leader_epoch
            served.timestamp_types[record.offset] = _timestamp_type(header)
    served.committed = [KafkaRecord(*record) for record in _committed(log)]
    return served


def _fetch(
    log: Log, isolation: FetchIsolation
) -> Iterator[tuple[BatchHeader, list[Record], list[AbortedTxn]]]:
    """Yields the header, the records and the fetch's aborted transactions of each batch."""
    offset = log.log_start_offset
    while True:
        fetched = log.read(offset, FETCH_BYTES, isolation)
        if fetched.records is None:
            return
        for view, position, header in batches_in(fetched.records):
            records = read_records(view, position)
            readable = [record for record in records if record.offset >= log.log_start_offset]
            yield header, readable, fetched.aborted_transactions or []
            offset = header.next_offset


def _committed(log: Log) -> Iterator[Record]:
    """Skips aborted records in the same way as Kafka's consumer."""
    aborted: set[int] = set()
    waiting: list[AbortedTxn] = []
    current_transactions: list[AbortedTxn] = []
    for header, records, transactions in _fetch(log, FetchIsolation.TXN_COMMITTED):
        if transactions is not current_transactions:
            current_transactions = transactions
            waiting = sorted(current_transactions, key=lambda txn: txn.first_offset, reverse=True)
            aborted.clear()
        while waiting and waiting[-1].first_offset <= header.last_offset:
            aborted.add(waiting.pop().producer_id)
        if header.is_control:
            aborted.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in aborted):
            yield from records


def _timestamp_type(header: BatchHeader) -> str:
    return "NoTimestampType" if header.magic == 0 else TIMESTAMP_TYPES[header.timestamp_type]


def _found_offset(response: TimestampAndOffset | None) -> FoundOffset | None:
    return None if response is None else FoundOffset(response.offset, response.timestamp)
