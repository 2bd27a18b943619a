"""The rule of exactly-once: whether a micro-batch is new, stored already, or neither.

A sink stores the offsets that it has reached in the same transaction as the results. When Spark
runs a batch again after a crash, the offsets show that it is stored. The number of the batch alone
does not: a new checkpoint counts from zero, and new data would be taken for stored data.

A stateful query also has batches that read nothing: the watermark has advanced, and rows leave the
state. Their start and end offsets are equal, so the number decides among batches of one checkpoint.
That is enough, because a stateful query never continues with another checkpoint.

The query applies the rule before it runs a plan, so that the plan of a stored batch need not run.
The database sink applies it again inside its transaction, because there the response to a COMMIT
can be lost: only the database knows then whether the batch is stored.
"""

from enum import Enum

from penstock.spark.errors import ProgressError
from penstock.spark.progress import Batch, Progress, SourceOffsets, StoredProgress


class Decision(Enum):
    APPLY = "apply"
    SKIP = "skip"


def decide(stored: StoredProgress, batch: Batch) -> Decision:
    """Returns whether to apply the batch or to skip it.

    Raises `ProgressError` if the sink is neither at its start nor at its end: to continue would
    lose or duplicate rows.
    """
    is_at_end = _is_at(stored.progress, batch.end)
    is_at_start = _is_at(stored.progress, batch.start)
    if is_at_end and is_at_start:
        is_stored = stored.query_id == batch.query_id and stored.batch_id >= batch.batch_id
        return Decision.SKIP if is_stored else Decision.APPLY
    if is_at_end:
        return Decision.SKIP
    if is_at_start:
        return Decision.APPLY
    raise ProgressError(
        "the sink has stored other offsets than the checkpoint: "
        + "; ".join(_differences(stored.progress, batch))
        + ". Rows would be lost or duplicated. If the checkpoint is that of another run, remove it "
        "and start again: the pipeline then continues from the offsets of the sink. If the results "
        "may be recreated, `penstock pipeline rebuild` clears results and offsets together"
    )


def _is_at(stored: Progress, offsets: Progress) -> bool:
    """Whether the sink is exactly at these offsets, partition by partition."""
    for name in stored.keys() | offsets.keys():
        reached = stored.get(name, SourceOffsets({}))
        expected = offsets.get(name, SourceOffsets({}))
        if recreated_topics(reached, expected) or reached.offsets != expected.offsets:
            return False
    return True


def recreated_topics(before: SourceOffsets, now: SourceOffsets) -> set[str]:
    """Returns the topics that were deleted and created again between the two."""
    return {
        topic
        for topic, topic_id in now.topic_ids.items()
        if before.topic_ids.get(topic, topic_id) != topic_id
    }


def _differences(stored: Progress, batch: Batch) -> list[str]:
    differences: list[str] = []
    for name, end in batch.end.items():
        reached = stored.get(name, SourceOffsets({}))
        start = batch.start.get(name, SourceOffsets({}))
        differences += [
            f"topic {topic} was deleted and created again since they were stored"
            for topic in sorted(recreated_topics(reached, end))
        ]
        for partition in sorted(end.offsets.keys() | reached.offsets.keys()):
            at, first, last = (source.offsets.get(partition) for source in (reached, start, end))
            if at not in (first, last):
                differences.append(
                    f"{partition}: stored {at}, the batch goes from {first} to {last}"
                )
    return differences[:10] or ["some partitions are at the start of the batch, others at its end"]
