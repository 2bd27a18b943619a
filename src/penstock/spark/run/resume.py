"""Where a query goes on: what the sink has stored, against what the checkpoint says. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass

from penstock.spark.errors import CheckpointLostError, PipelineError, ProgressError
from penstock.spark.exactly_once import Decision, decide
from penstock.spark.progress import Batch, Progress, SourceOffsets, StoredProgress
from penstock.spark.run.offset_log import source_of

_REBUILD = "`penstock pipeline rebuild` clears results and progress, and makes them anew"


@dataclass(frozen=True)
class CheckpointState:
    """What there is of a checkpoint when a query is to start."""

    exists: bool = False
    """Whether there is any file."""
    query_id: str = ""
    begin: Progress | None = None
    planned: int | None = None
    done: int | None = None
    start: Progress | None = None
    """Of the last planned batch, where its predecessor is known."""
    end: Progress | None = None


def check_first_run(key: str, seen: CheckpointState, location: str) -> None:
    """Of a sink that has stored nothing yet: a checkpoint would make it miss records."""
    if seen.exists:
        raise PipelineError(
            f"{key}: the sink has stored no progress, and yet there is a checkpoint in {location}. "
            "Either a rebuild was interrupted, or this is another database than before. "
            f"{_REBUILD}; or remove the checkpoint"
        )


@dataclass(frozen=True)
class QueryPlan:
    """What the plan of a query says."""

    sources: tuple[str, ...]
    """One that is read twice is `clicks`, then `clicks#2`."""
    stateful: bool
    patterns: frozenset[str] = frozenset()
    """Sources that read what matches a pattern: there may be nothing yet."""


def resume_position(
    key: str, stored: StoredProgress, seen: CheckpointState, needs: QueryPlan
) -> Progress:
    """Where the first batch of the checkpoint begins, be there one or not.

    Raises where the query cannot go on: its state is gone, or belongs to other results, or its
    sources are other ones.
    """
    _check_sources(key, "the sink has", stored.progress, needs)
    has_run = stored.batch_id >= 0
    if seen.planned is None:
        if needs.stateful and has_run:
            raise CheckpointLostError(
                f"{key} keeps state (windows, joins, …), and its checkpoint is gone: without the "
                f"state, later results would be wrong. {_REBUILD}"
            )
        _check_same_place(key, stored.progress)
        return stored.progress
    if seen.end is not None:
        _check_sources(key, "the checkpoint has", seen.end, needs)
    if needs.stateful and has_run and stored.query_id != seen.query_id:
        raise CheckpointLostError(
            f"{key} keeps state, and this checkpoint is not the one to which the results belong. "
            f"Put that one back; or {_REBUILD}"
        )
    _check_last(key, stored, seen)
    if seen.begin is not None:
        return seen.begin
    if seen.done is None:
        raise ProgressError(
            f"{key}: the checkpoint does not say where the query began. Remove it and start "
            "again: the sink's own offsets count then"
        )
    return stored.progress


def _check_last(key: str, stored: StoredProgress, seen: CheckpointState) -> None:
    """The last batch of the checkpoint, before any new one hides the difference."""
    start = seen.start if seen.planned else seen.begin
    if seen.planned is None or seen.end is None or start is None:
        return
    last = Batch(seen.query_id, seen.planned, start, seen.end)
    if decide(stored, last) is Decision.APPLY and seen.done == seen.planned:
        raise ProgressError(
            f"{key}: the checkpoint says that batch {seen.done} is stored, and the sink does not "
            "have it: was the database restored? Remove the checkpoint and start again, the "
            f"sink's own offsets count then; a query that keeps state must be rebuilt: {_REBUILD}"
        )


def _check_sources(key: str, who: str, progress: Progress, needs: QueryPlan) -> None:
    sources = set(needs.sources)
    missing = {
        source for source in sources - progress.keys() if source_of(source) not in needs.patterns
    }
    if missing or progress.keys() - sources:
        raise PipelineError(
            f"{key}: {who} progress of the sources {_listed(progress)}, and now the query reads "
            f"{_listed(sources)}. Give the sink another name to start with no progress, or "
            f"rebuild it: {_REBUILD}"
        )


def _check_same_place(key: str, progress: Progress) -> None:
    """A source that is read twice starts both times at the same place."""
    places: dict[str, SourceOffsets] = {}
    for name, offsets in progress.items():
        if places.setdefault(source_of(name), offsets).offsets != offsets.offsets:
            raise CheckpointLostError(
                f"{key} reads {source_of(name)} in two places which were at different offsets, and "
                f"its checkpoint is gone. {_REBUILD}"
            )


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(names)) or "none"
