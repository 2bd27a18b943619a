"""Whether a batch is new, done already, or not to be explained: the heart of exactly-once (D3).

The sink keeps how far it has come in the same transaction as the results. A batch that Spark runs
again after a crash is known by its offsets. Its number alone says nothing: a new checkpoint counts
from zero, and fresh data would be taken for done.

A stateful query also has batches that read nothing: the watermark has moved, and rows come out of
the state. Their offsets are the same before and after, so there the number counts, among batches
of one checkpoint. That is enough, because a stateful query does not go on with another checkpoint.
"""

from enum import Enum

from penstock.spark.errors import ProgressError
from penstock.spark.progress import Batch, Progress, SourceOffsets, StoredProgress


class Decision(Enum):
    APPLY = "apply"
    SKIP = "skip"


def decide(stored: StoredProgress, batch: Batch) -> Decision:
    """What to do with the batch.

    `ProgressError` where the sink is neither at its start nor at its end: to go on would lose or
    double rows.
    """
    at_end = _is_at(stored.progress, batch.end)
    at_start = _is_at(stored.progress, batch.start)
    if at_end and at_start:
        done = stored.query_id == batch.query_id and stored.batch_id >= batch.batch_id
        return Decision.SKIP if done else Decision.APPLY
    if at_end:
        return Decision.SKIP
    if at_start:
        return Decision.APPLY
    raise ProgressError(
        "the sink has stored other offsets than the checkpoint: "
        + "; ".join(_differences(stored.progress, batch))
        + ". Rows would be lost or doubled. If the checkpoint is that of another run, remove it "
        "and start again: the sink's own offsets count then. If the results may be made anew, "
        "`penstock pipeline rebuild` clears results and offsets together"
    )


def _is_at(stored: Progress, offsets: Progress) -> bool:
    """Whether the sink is exactly there, partition by partition."""
    for name in stored.keys() | offsets.keys():
        have = stored.get(name, SourceOffsets({}))
        other = offsets.get(name, SourceOffsets({}))
        if recreated_topics(have, other) or have.offsets != other.offsets:
            return False
    return True


def recreated_topics(have: SourceOffsets, now: SourceOffsets) -> set[str]:
    """Topics that were deleted and made again in between."""
    return {
        topic for topic, found in now.topic_ids.items() if have.topic_ids.get(topic, found) != found
    }


def _differences(stored: Progress, batch: Batch) -> list[str]:
    found: list[str] = []
    for name, source in batch.end.items():
        have = stored.get(name, SourceOffsets({}))
        first = batch.start.get(name, SourceOffsets({}))
        found += [
            f"topic {topic} was deleted and made again since they were stored"
            for topic in sorted(recreated_topics(have, source))
        ]
        for partition in sorted(source.offsets.keys() | have.offsets.keys()):
            at, begin, last = (one.offsets.get(partition) for one in (have, first, source))
            if at not in (begin, last):
                found.append(f"{partition}: stored {at}, the batch goes from {begin} to {last}")
    return found[:10] or ["some partitions are at the start of the batch, others at its end"]
