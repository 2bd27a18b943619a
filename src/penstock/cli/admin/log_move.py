"""`penstock log move`: partitions to other brokers and folders (kafka-reassign-partitions.sh; R8).

`generate` proposes a plan, `execute` starts it, `verify` says how far it is, `cancel` stops it.
"""

import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from penstock.cli import complete
from penstock.cli.admin.json_files import moves_document, moves_in, topics_in
from penstock.cli.admin.reassignment import progress_of, propose, throttles
from penstock.cli.admin.reassignment_steps import (
    ask_for_folders,
    folder_moves,
    folder_states,
    take_throttles_away,
    throttle_changes,
)
from penstock.cli.app import new_group
from penstock.cli.names import choose_partitions, count_of
from penstock.cli.output import Marked, UsageError, fail
from penstock.cli.session import Session, Yes, command
from penstock.core.errors import ErrorCode, KafkaError
from penstock.core.ids import TopicPartition

if TYPE_CHECKING:
    from penstock.client.admin.admin import Admin

app = new_group("Moves of partitions to other brokers and folders.")

_POLL_S: Final = 0.5

Plan = Annotated[
    Path,
    typer.Argument(metavar="PLAN.json", help="As generate writes it, and Kafka's script reads it."),
]


@command(app, "generate")
def generate(
    session: Session,
    topics: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="TOPIC[:PARTITIONS]",
            help="What to move: names or regular expressions.",
            autocompletion=complete.topics,
            show_default=False,
        ),
    ] = None,
    brokers: Annotated[
        str,
        typer.Option("--brokers", metavar="ID,ID…", help="Where to; all without."),
    ] = "",
    topics_file: Annotated[
        Path | None,
        typer.Option(
            "--topics-file",
            metavar="JSON",
            help='Kafka\'s file: {"topics": [{"topic": "orders"}]}.',
            show_default=False,
        ),
    ] = None,
    replication_factor: Annotated[
        int | None,
        typer.Option(
            "--replication-factor", "-r", min=1, help="More or fewer copies.", show_default=False
        ),
    ] = None,
    no_racks: Annotated[
        bool, typer.Option("--disable-rack-aware", help="Do not look at racks.")
    ] = False,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", metavar="FILE", help="Write the plan there.", show_default=False
        ),
    ] = None,
) -> None:
    """Propose brokers for partitions, evenly and with few moves. Nothing is changed.

    Prints the plan, for `penstock log move execute`.
    """
    if bool(topics) == (topics_file is not None):
        raise UsageError("say what to move: TOPIC[:PARTITIONS]… or --topics-file")
    words = topics_in(topics_file) if topics_file is not None else topics or []
    with session.admin() as admin:
        cluster = admin.describe_cluster()
        current, internal = _assignments(admin)
    racks = {node.id: None if no_racks else node.rack for node in cluster.nodes}
    if brokers:
        wanted = _broker_ids(brokers)
        if unknown := [item for item in wanted if item not in racks]:
            raise KafkaError(
                ErrorCode.BROKER_ID_NOT_REGISTERED,
                f"there is no broker {unknown[0]} now: penstock cluster describe shows them",
            )
        racks = {item: racks[item] for item in wanted}
    counts: dict[str, int] = {}
    for entry in current:
        counts[entry.topic] = max(counts.get(entry.topic, 0), entry.partition + 1)
    chosen = {
        partition: current[partition] for partition in choose_partitions(words, counts, internal)
    }
    proposed = propose(chosen, racks, replication_factor)
    changed = [item for item in proposed if proposed[item] != chosen[item]]
    session.out.note(f"{count_of(len(changed), 'partition')} of {len(proposed)} would change")
    document = moves_document(proposed)
    if output is not None:
        output.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
        session.out.note(f"the plan is in {output}: penstock log move execute {output}")
    if session.out.as_json:
        now = moves_document(chosen)
        session.out.document({"current": now, "proposed": document})
    elif output is None:
        print(json.dumps(document, indent=1 if sys.stdout.isatty() else None))


@command(app, "execute")
def execute(
    session: Session,
    plan: Plan,
    throttle: Annotated[
        int | None,
        typer.Option(
            "--throttle", metavar="BYTES/S", help="Between brokers.", min=0, show_default=False
        ),
    ] = None,
    folder_throttle: Annotated[
        int | None,
        typer.Option(
            "--replica-alter-log-dirs-throttle",
            metavar="BYTES/S",
            help="Between folders of a broker.",
            min=0,
            show_default=False,
        ),
    ] = None,
    additional: Annotated[
        bool, typer.Option("--additional", help="Other moves may be under way.")
    ] = False,
    rollback: Annotated[
        Path | None,
        typer.Option(
            "--rollback",
            metavar="FILE",
            help="Write the present state there, as a plan that leads back.",
            show_default=False,
        ),
    ] = None,
    wait: Annotated[bool, typer.Option("--wait", help="Until all moves are done.")] = False,
    yes: Yes = False,
) -> None:
    """Start the moves of a plan."""
    moves = moves_in(plan)
    target = {item: move.replicas for item, move in moves.items()}
    with session.admin() as admin:
        current, _ = _assignments(admin)
        if unknown := [item for item in target if item not in current]:
            raise KafkaError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{plan}: there is no partition {unknown[0]}"
            )
        moving = admin.list_partition_reassignments()
        if moving and not additional:
            raise KafkaError(
                ErrorCode.REASSIGNMENT_IN_PROGRESS,
                f"{count_of(len(moving), 'partition')} are being moved: wait (penstock log move "
                "list), or say --additional",
            )
        before = {item: current[item] for item in target}
        if rollback is not None:
            text = json.dumps(moves_document(before), indent=1)
            rollback.write_text(text + "\n", encoding="utf-8")
        changed = {item: new for item, new in target.items() if tuple(new) != before[item]}
        directories = folder_moves(moves)
        what = f"Move {count_of(len(changed), 'partition')}"
        what += (
            f" and {count_of(len(directories), 'log directory', 'log directories')}?"
            if directories
            else "?"
        )
        session.confirm(what, yes=yes)
        throttling = throttle_changes(
            throttles(before, target), throttle, directories, folder_throttle
        )
        if throttling:
            admin.incremental_alter_configs(throttling)
        # Folders that a copy is going to have are noted by its broker before it comes.
        ask_for_folders(admin, directories, before, coming=True)
        if changed:
            admin.alter_partition_reassignments(changed)
        ask_for_folders(admin, directories, before, coming=False)
        if wait:
            _wait(session, admin, list(changed))
    if throttle is not None or folder_throttle is not None:
        session.out.note("run penstock log move verify when it is done: it takes the throttle away")
    session.out.table(
        ["Topic", "Partition", "From", "To"],
        [(*item, before[item], new) for item, new in sorted(changed.items())],
        empty="all partitions are where they shall be",
    )


@command(app, "verify")
def verify(
    session: Session,
    plan: Plan,
    keep: Annotated[
        bool, typer.Option("--preserve-throttles", help="Leave throttles as they are.")
    ] = False,
) -> None:
    """Say how far the moves of a plan are; once all are done, take the throttles away.

    Exit code 1 where something is neither moving nor where the plan says.
    """
    moves = moves_in(plan)
    target = {item: move.replicas for item, move in moves.items()}
    with session.admin() as admin:
        current, _ = _assignments(admin)
        moving = admin.list_partition_reassignments()
        states = progress_of(current, target, moving)
        directories = folder_states(admin, folder_moves(moves))
        words = {*states.values(), *(state for _, _, state in directories)}
        if "in progress" not in words and not keep:
            take_throttles_away(admin, {item.topic for item in target if item in current})
    styles = {"complete": "green", "in progress": "cyan"}
    rows: list[tuple[object, ...]] = [
        (*item, current.get(item), target[item], None, Marked(state, styles.get(state, "red")))
        for item, state in states.items()
    ]
    rows += [
        (*directory[:2], None, directory.broker_id, path, Marked(state, styles.get(state, "red")))
        for directory, path, state in directories
    ]
    session.out.table(["Topic", "Partition", "Now", "Wanted", "Folder", "State"], rows)
    if words & {"different", "unknown"}:
        fail(
            "the cluster is not as the plan says, and nothing moves: execute it",
            as_json=session.out.as_json,
        )


@command(app, "list")
def list_moves(session: Session) -> None:
    """List moves that are under way."""
    with session.admin() as admin:
        reassignments = admin.list_partition_reassignments()
    session.out.table(
        ["Topic", "Partition", "Replicas", "Adding", "Removing"],
        [(*item, *move) for item, move in sorted(reassignments.items())],
        empty="nothing moves",
    )


@command(app, "cancel")
def cancel(
    session: Session,
    plan: Annotated[
        Path | None,
        typer.Argument(metavar="PLAN.json", help="Its moves; or --all.", show_default=False),
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="All moves.")] = False,
    yes: Yes = False,
) -> None:
    """Stop moves that are under way; partitions stay where they were."""
    if (plan is None) != every:
        raise UsageError("say which moves: PLAN.json or --all")
    with session.admin() as admin:
        moving = admin.list_partition_reassignments()
        wanted = sorted(moving if plan is None else set(moves_in(plan)) & set(moving))
        if wanted:
            session.confirm(f"Stop moving {count_of(len(wanted), 'partition')}?", yes=yes)
            admin.alter_partition_reassignments(dict.fromkeys(wanted))
            take_throttles_away(admin, {item.topic for item in wanted})
    session.out.table(
        ["Topic", "Partition", "Cancelled"],
        [(*item, True) for item in wanted],
        empty="nothing moves",
    )


def _assignments(admin: "Admin") -> tuple[dict[TopicPartition, tuple[int, ...]], list[str]]:
    """The brokers of every partition, and which topics are internal."""
    described = admin.describe_topics(admin.list_topics(include_internal=True)).values()
    result = {
        TopicPartition(topic.name, partition.partition): partition.replicas
        for topic in described
        for partition in topic.partitions
    }
    return result, [topic.name for topic in described if topic.is_internal]


def _broker_ids(text: str) -> list[int]:
    try:
        return list(dict.fromkeys(int(part) for part in text.split(",")))
    except ValueError:
        raise UsageError(f"--brokers {text}: write ids with commas, such as 0,1,2") from None


def _wait(session: Session, admin: "Admin", partitions: list[TopicPartition]) -> None:
    with session.out.progress("moving", len(partitions)) as step:
        left = len(partitions)
        while partitions:
            partitions = list(admin.list_partition_reassignments(partitions))
            step(left - len(partitions))
            left = len(partitions)
            if partitions:
                time.sleep(_POLL_S)
