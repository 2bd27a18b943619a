"""The output of `penstock pipeline` for runs, status and replays."""

from typing import TYPE_CHECKING

from penstock.cli.output import Marked, Output

if TYPE_CHECKING:
    from penstock.spark.decode.replay import ReplayResult
    from penstock.spark.pipeline.model import PipelineSpec
    from penstock.spark.run.run import RunResult
    from penstock.spark.run.status import PartitionStatus, QueryStatus, Status


def run_summary(out: Output, spec: "PipelineSpec", result: "RunResult") -> None:
    """Prints the result of a run."""
    out.table(
        ["Query", "Batches", "Repeated", "Rows", "Dead letters", "Seconds"],
        [
            (
                query.key,
                query.batches,
                query.skipped,
                query.rows,
                Marked(query.dead_letters, "yellow") if query.dead_letters else 0,
                query.seconds,
            )
            for query in result.queries
        ],
        title=f"pipeline {spec.name}",
    )


def show_status(out: Output, status: "Status") -> None:
    """Prints the progress of each query, then its partitions."""
    out.table(
        ["Query", "Lag", "Last batch", "Rows", "Stored at", "Owner", "Since"],
        [_query_row(query) for query in status.queries],
        title=f"pipeline {status.pipeline}",
        document=_document(status),
    )
    if out.as_json:
        return
    out.table(
        ["Query", "Source", "Topic", "Partition", "Next offset", "End", "Lag"],
        [
            (query.key, *_partition(partition).values())
            for query in status.queries
            for partition in query.partitions
        ],
        empty="no topic was found",
    )
    for query in status.queries:
        for problem in query.problems:
            out.note(f"{query.key}: {problem}")


def _query_row(query: "QueryStatus") -> list[object]:
    state = query.state
    if state is None:
        return [query.key, query.lag, "never run", None, None, None, None]
    stored, last = state.stored, state.last_batch
    return [
        query.key,
        query.lag,
        stored.batch_id if stored is not None and stored.batch_id >= 0 else None,
        last.rows if last is not None else None,
        last.at if last is not None else None,
        state.owner or None,
        state.since or None,
    ]


def _document(status: "Status") -> object:
    names = ("query", "lag", "last_batch", "rows", "stored_at", "owner", "since")
    queries = []
    for query in status.queries:
        document = dict(zip(names, _query_row(query), strict=True))
        if query.state is None:
            document["last_batch"] = None
        document["partitions"] = [_partition(partition) for partition in query.partitions]
        document["problems"] = list(query.problems)
        queries.append(document)
    return {"pipeline": status.pipeline, "lag": status.lag, "queries": queries}


def _partition(partition: "PartitionStatus") -> dict[str, object]:
    return {
        "source": partition.source,
        **partition.partition._asdict(),
        "next_offset": partition.next_offset,
        "end": partition.end,
        "lag": partition.lag,
    }


def replayed(out: Output, result: "ReplayResult") -> None:
    """Prints how many dead letters were sent again, or would be, by reason."""
    out.table(
        ["Reason", "Records"],
        result.by_reason.most_common(),
        document={
            "replayed": result.replayed,
            "dry_run": result.is_dry_run,
            "by_reason": dict(result.by_reason),
            "by_topic": dict(result.by_topic),
            "repeated": result.repeated,
            "foreign": result.foreign,
        },
        empty="there are no dead letters that were not sent again already",
    )
    if not result.replayed:
        return
    topics = ", ".join(f"{count:,} to {topic}" for topic, count in result.by_topic.most_common())
    out.line(f"{'would send' if result.is_dry_run else 'sent'} {topics}")
    if result.repeated:
        out.note(f"{result.repeated:,} were left out: the same record was sent for another sink")
    if result.foreign:
        out.note(f"{result.foreign:,} records of the topic are not dead letters of this pipeline")
