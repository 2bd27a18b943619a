"""`penstock log`: log directories of brokers, deletion of records, moves (kafka-log-dirs.sh …)."""

from pathlib import Path

from penstock.cli import complete
from penstock.cli.admin import log_move
from penstock.cli.admin.json_files import offsets_in
from penstock.cli.app import new_group
from penstock.cli.dump.command import dump_log
from penstock.cli.names import count_of, one_partition
from penstock.cli.options import argument, flag, option
from penstock.cli.output import Marked, UsageError
from penstock.cli.session import YES, Session, command
from penstock.core.ids import TopicPartition

app = new_group("Log directories and sizes, deletion of records, moves between brokers.")
app.add_typer(log_move.app, name="move")
app.command("dump")(dump_log)


@command(app, "dirs")
def dirs(
    session: Session,
    broker: list[int] | None = option("--broker", help="Only this one; may be repeated."),
    topic: list[str] | None = option(
        "--topic", help="Only this one; may be repeated.", autocompletion=complete.topics
    ),
    summary: bool = flag("--summary", help="Only directories, with their totals."),
) -> None:
    """Show the log directories of brokers and the partitions in them: kafka-log-dirs.sh."""
    with session.admin() as admin:
        log_dirs = admin.describe_log_dirs(broker or None, topics=topic or None)
    directories = []
    rows = []
    for number, described in sorted(log_dirs.items()):
        for path, log_dir in sorted(described.items()):
            state: object = "ok"
            if log_dir.error is not None:
                state = Marked(log_dir.error.message, "bold red")
            elif log_dir.is_cordoned:
                state = Marked("cordoned", "yellow")
            size = sum(replica.size for replica in log_dir.replicas.values())
            directories.append(
                (
                    number,
                    path,
                    state,
                    len(log_dir.replicas),
                    size,
                    log_dir.usable_bytes,
                    log_dir.total_bytes,
                )
            )
            for partition, replica in sorted(log_dir.replicas.items()):
                lag = Marked(replica.offset_lag, "yellow") if replica.offset_lag else 0
                rows.append((number, path, *partition, replica.size, lag, replica.is_future))
    if session.out.as_json:
        session.out.document(
            [
                {
                    "broker": number,
                    "log_dir": path,
                    "error": log_dir.error,
                    "total_bytes": log_dir.total_bytes,
                    "usable_bytes": log_dir.usable_bytes,
                    "is_cordoned": log_dir.is_cordoned,
                    "partitions": [
                        partition._asdict() | replica._asdict()
                        for partition, replica in sorted(log_dir.replicas.items())
                    ],
                }
                for number, described in sorted(log_dirs.items())
                for path, log_dir in sorted(described.items())
            ]
        )
        return
    session.out.table(
        ["Broker", "Directory", "State", "Partitions", "Size", "Usable", "Total"], directories
    )
    if not summary:
        session.out.line("")
        session.out.table(
            ["Broker", "Directory", "Topic", "Partition", "Size", "Offset lag", "Future"],
            rows,
            empty="there are no partitions",
        )


@command(app, "delete-records")
def delete_records(
    session: Session,
    targets: list[str] | None = argument(
        "TOPIC:PARTITION=OFFSET",
        default=None,
        help="The first offset that stays; -1 deletes all up to the high watermark.",
        autocompletion=complete.topics,
    ),
    file: Path | None = option(
        "--file",
        metavar="JSON",
        help='Kafka\'s file: {"partitions": [{"topic": "a", "partition": 0, "offset": 9}]}.',
    ),
    yes: bool = YES,
) -> None:
    """Delete the records of partitions before an offset: kafka-delete-records.sh."""
    if bool(targets) == (file is not None):
        raise UsageError("name what to delete: TOPIC:PARTITION=OFFSET or --file")
    offsets = offsets_in(file) if file is not None else _offsets(targets or [])
    what = f"Delete records of {count_of(len(offsets), 'partition')} permanently?"
    session.confirm(what, yes=yes)
    with session.admin() as admin:
        low = admin.delete_records(offsets)
    session.out.table(
        ["Topic", "Partition", "Low watermark"],
        [(*partition, offset) for partition, offset in sorted(low.items())],
    )


def _offsets(targets: list[str]) -> dict[TopicPartition, int]:
    offsets = {}
    for target in targets:
        partition, _, offset = target.rpartition("=")
        if not partition or not offset.removeprefix("-").isdecimal():
            raise UsageError(
                f"'{target}'", remedy="write TOPIC:PARTITION=OFFSET, such as orders:0=42"
            )
        offsets[one_partition(partition)] = int(offset)
    return offsets
