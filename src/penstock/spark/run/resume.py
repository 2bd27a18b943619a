"""Where a query resumes: the stored progress of its sink compared with its checkpoint.

Pure: the query reads both and calls `check_first_run` and `resume_position` before it starts.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from penstock.spark.errors import CheckpointLostError, PipelineError, ProgressError
from penstock.spark.exactly_once import Decision, decide
from penstock.spark.progress import Batch, Progress, SourceOffsets, StoredProgress
from penstock.spark.run.offset_log import source_of

_REBUILD = "`penstock pipeline rebuild` clears results and progress; the next run recreates them"


@dataclass(frozen=True)
class CheckpointState:
    """What a query's checkpoint contains when the query starts."""

    exists: bool = False
    """Whether the checkpoint has any file."""
    query_id: str = ""
    begin: Progress | None = None
    """Where the first batch starts."""
    planned: int | None = None
    """The last batch whose offsets are fixed."""
    done: int | None = None
    """The last batch that Spark has committed."""
    start: Progress | None = None
    """Where the last planned batch starts, if the end of its predecessor is known."""
    end: Progress | None = None
    """Where the last planned batch ends."""


def check_first_run(key: str, checkpoint: CheckpointState, location: str) -> None:
    """Raises `PipelineError` if a sink has no progress but its query has a checkpoint.

    The query would continue from the checkpoint, and the sink would miss the records before it.
    """
    if checkpoint.exists:
        raise PipelineError(
            f"{key}: the sink has stored no progress, but there is a checkpoint in {location}. "
            "Either a rebuild was interrupted, or this is another database than before. "
            f"{_REBUILD}; or remove the checkpoint"
        )


@dataclass(frozen=True)
class QueryPlan:
    """The sources and the state of a query, taken from its plan."""

    sources: tuple[str, ...]
    """In the order of Spark's offset log; one that is read twice is `clicks`, then `clicks#2`."""
    stateful: bool
    patterns: frozenset[str] = frozenset()
    """Sources that read topics by a pattern: no topic may match it yet."""


def resume_position(
    key: str, stored: StoredProgress, checkpoint: CheckpointState, plan: QueryPlan
) -> Progress:
    """Returns where the first batch of the checkpoint starts.

    Without a checkpoint that is the stored progress. Raises `PipelineError` or one of its
    subclasses if the query cannot resume: its state is missing or belongs to other results, or its
    sources have changed.
    """
    _check_sources(key, "the sink has", stored.progress, plan)
    has_run = stored.batch_id >= 0
    if checkpoint.planned is None:
        if plan.stateful and has_run:
            raise CheckpointLostError(
                f"{key} keeps state (windows, joins, …), and its checkpoint is missing: without "
                f"the state, later results would be wrong. {_REBUILD}"
            )
        _check_same_position(key, stored.progress)
        return stored.progress
    if checkpoint.end is not None:
        _check_sources(key, "the checkpoint has", checkpoint.end, plan)
    if plan.stateful and has_run and stored.query_id != checkpoint.query_id:
        raise CheckpointLostError(
            f"{key} keeps state, and this checkpoint is not the one to which the results belong",
            remedy=f"put that one back; or {_REBUILD}",
        )
    _check_last(key, stored, checkpoint)
    if checkpoint.begin is not None:
        return checkpoint.begin
    if checkpoint.done is None:
        raise ProgressError(
            f"{key}: the checkpoint does not say where the query began",
            remedy="remove it and start again: the query then continues from the offsets of the "
            "sink",
        )
    return stored.progress


def _check_last(key: str, stored: StoredProgress, checkpoint: CheckpointState) -> None:
    """Compares the last batch of the checkpoint with the sink, before a new batch starts."""
    start = checkpoint.start if checkpoint.planned else checkpoint.begin
    if checkpoint.planned is None or checkpoint.end is None or start is None:
        return
    last = Batch(checkpoint.query_id, checkpoint.planned, start, checkpoint.end)
    if decide(stored, last) is Decision.APPLY and checkpoint.done == checkpoint.planned:
        raise ProgressError(
            f"{key}: the checkpoint says that batch {checkpoint.done} is stored, and the sink does "
            "not have it: was the database restored? Remove the checkpoint and start again, the "
            "query then continues from the offsets of the sink; a query that keeps state must be "
            f"rebuilt: {_REBUILD}"
        )


def _check_sources(key: str, holder: str, progress: Progress, plan: QueryPlan) -> None:
    sources = set(plan.sources)
    missing = {
        source for source in sources - progress.keys() if source_of(source) not in plan.patterns
    }
    if missing or progress.keys() - sources:
        raise PipelineError(
            f"{key}: {holder} progress of the sources {_join_names(progress)}, and now the query "
            f"reads {_join_names(sources)}",
            remedy="give the sink another name to start with no progress, or rebuild it: "
            f"{_REBUILD}",
        )


def _check_same_position(key: str, progress: Progress) -> None:
    """Raises if a source that is read twice would start at two different positions."""
    positions: dict[str, SourceOffsets] = {}
    for name, offsets in progress.items():
        if positions.setdefault(source_of(name), offsets).offsets != offsets.offsets:
            raise CheckpointLostError(
                f"{key} reads {source_of(name)} in two places which were at different offsets, and "
                f"its checkpoint is missing. {_REBUILD}"
            )


def _join_names(names: Iterable[str]) -> str:
    return ", ".join(sorted(names)) or "none"
