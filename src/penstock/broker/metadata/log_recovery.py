"""What the logs of a broker say about a metadata store that is new: it was lost, or was Kafka's."""

from collections.abc import Mapping, Sequence

from penstock.broker.coordinator.log import read_log
from penstock.broker.workers import Workers
from penstock.controller.topic_recovery import RecoveredLog
from penstock.coordinator.txn.records import TransactionRecord, decode_record
from penstock.core.ids import TopicPartition
from penstock.core.internal_topics import TRANSACTION_STATE_TOPIC
from penstock.records.batch import BatchHeader
from penstock.records.read import read_records
from penstock.storage.log.log import Log


def recovered_logs(logs: Sequence[Log]) -> Mapping[TopicPartition, RecoveredLog]:
    return {log.partition: RecoveredLog(log.topic_id, log.epochs.latest_epoch or 0) for log in logs}


async def last_producer_id(logs: Sequence[Log], workers: Workers) -> int:
    """Returns the highest producer id that a partition or a transactional id has; -1 for none."""
    last = -1
    for log in logs:
        last = max(last, *log.producers.active_producers(), -1)
        if log.partition.topic == TRANSACTION_STATE_TOPIC:
            async for ids in read_log(log, workers, _producer_ids):
                last = max([last, *(item for item in ids if isinstance(item, int))])
    return last


def _producer_ids(data: bytes, position: int, header: BatchHeader) -> list[int]:
    """Returns the producer ids of the transactional ids in a batch."""
    if header.is_control:
        return []
    result = []
    for record in read_records(data, position, header):
        decoded = decode_record(record.key, record.value)
        if isinstance(decoded, TransactionRecord) and decoded.value is not None:
            result += [decoded.value.producer_id, decoded.value.next_producer_id]
    return result
