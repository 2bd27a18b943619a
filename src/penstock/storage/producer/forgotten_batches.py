"""Recognises a batch that is sent again, although the state of its producer has forgotten it.

A snapshot has only the last batch of each producer. After a clean restart, or after a truncation,
a producer may send several batches again whose responses it has not received. If the earlier ones
were refused as out of order, the producer would start a new epoch and write them a second time.
"""

from collections.abc import Sequence

from penstock.core.errors import ErrorCode, KafkaError
from penstock.records.batch import BatchHeader
from penstock.storage.producer.append_info import BATCHES_TO_RETAIN, BatchMetadata
from penstock.storage.producer.batch_analysis import BatchAnalysis
from penstock.storage.producer.state_manager import ProducerStateManager
from penstock.storage.segment.batch_scan import scan_batches
from penstock.storage.segment.log_segments import LogSegments

SEARCHED_BYTES = 1024 * 1024
"""How much of the log is read, before the oldest batch of the producer that is known."""


def analyze_refused(
    error: KafkaError,
    producers: ProducerStateManager,
    segments: LogSegments,
    headers: Sequence[BatchHeader],
) -> BatchAnalysis:
    """Returns the analysis of a batch that was refused and is in the log; raises `error` if not."""
    if error.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and len(headers) == 1:
        duplicate = find_forgotten_batch(producers, segments, headers[0])
        if duplicate is not None:
            return BatchAnalysis({}, [], [], duplicate)
    raise error


def find_forgotten_batch(
    producers: ProducerStateManager, segments: LogSegments, header: BatchHeader
) -> BatchMetadata | None:
    """Searches the log before the batches of the producer that are known; reads from the disk.

    None if the batch is new, or all batches that the producer may send again are known.
    """
    entry = producers.last_entry(header.producer_id)
    if entry is None or not 0 < len(entry.batches) < BATCHES_TO_RETAIN:
        return None
    newest_known = entry.batches[0]
    is_older = header.last_sequence < newest_known.first_sequence
    if header.producer_epoch != entry.producer_epoch or not is_older:
        return None
    end_offset, remaining_bytes = newest_known.first_offset, SEARCHED_BYTES
    while remaining_bytes > 0 and (segment := segments.floor(end_offset - 1)) is not None:
        location = segment.find(newest_known.first_offset)
        end = segment.size if location is None else location.position
        start = segment.indexes.offset_index.lookup_position(max(0, end - remaining_bytes)).position
        for batch in scan_batches(segment.file.opened(), start, end):
            if _is_same(batch.header, header):
                delta = batch.header.last_offset_delta
                return BatchMetadata(
                    header.last_sequence,
                    batch.header.base_offset + delta,
                    delta,
                    batch.header.max_timestamp,
                )
        end_offset = segment.base_offset
        remaining_bytes -= end - start
    return None


def _is_same(stored: BatchHeader, sent: BatchHeader) -> bool:
    return (
        stored.producer_id == sent.producer_id
        and stored.producer_epoch == sent.producer_epoch
        and not stored.is_control
        and stored.base_sequence == sent.base_sequence
        and stored.last_sequence == sent.last_sequence
    )
