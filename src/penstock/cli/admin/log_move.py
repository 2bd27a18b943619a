"""`penstock log move`: moves partitions to other brokers and log directories (R8).

The commands of kafka-reassign-partitions.sh: `generate` proposes a plan, `execute` starts it,
`verify` shows its progress, `cancel` stops it.
"""

import json
import sys
from pathlib import Path

from penstock.cli import complete
from penstock.cli.admin.json_files import moves_document, moves_in, topics_in
from penstock.cli.admin.reassignment import progress_of, propose, throttles
from penstock.cli.admin.reassignment_steps import (
    cancel_moves,
    log_dir_moves,
    log_dir_states,
    remove_throttles,
    set_log_dirs,
    throttle_changes,
    wait_for_moves,
)
from penstock.cli.admin.topic_selection import ClusterTopics
from penstock.cli.app import new_group
from penstock.cli.names import count_of
from penstock.cli.options import argument, flag, option
from penstock.cli.output import Marked, UsageError, fail
from penstock.cli.session import YES, Session, command
from penstock.core.errors import ErrorCode, KafkaError

app = new_group("Move partitions to other brokers and log directories.")

PLAN = argument("PLAN.json", help="A plan as generate and Kafka's script write it.")


@command(app, "generate")
def generate(
    session: Session,
    topics: list[str] | None = argument(
        "TOPIC[:PARTITIONS]",
        default=None,
        help="The topics to move: names or regular expressions.",
        autocompletion=complete.topics,
    ),
    brokers: str = option(
        "--brokers", default="", metavar="ID,ID…", help="The brokers to move to. Default: all."
    ),
    topics_file: Path | None = option(
        "--topics-file", metavar="JSON", help='Kafka\'s file: {"topics": [{"topic": "orders"}]}.'
    ),
    replication_factor: int | None = option(
        "--replication-factor", "-r", min=1, help="The new number of replicas."
    ),
    no_racks: bool = flag("--disable-rack-aware", help="Ignore racks."),
    output: Path | None = option(
        "--output", "-o", metavar="FILE", help="Write the plan to this file."
    ),
) -> None:
    """Propose brokers for partitions, with few moves and an even load. Nothing is changed.

    Prints a plan for `penstock log move execute`.
    """
    if bool(topics) == (topics_file is not None):
        raise UsageError("name what to move: TOPIC[:PARTITIONS]… or --topics-file")
    names = topics_in(topics_file) if topics_file is not None else topics or []
    with session.admin() as admin:
        cluster = admin.describe_cluster()
        cluster_topics = ClusterTopics.read(admin)
    racks = {node.id: None if no_racks else node.rack for node in cluster.nodes}
    if brokers:
        broker_ids = _broker_ids(brokers)
        if unknown := [broker_id for broker_id in broker_ids if broker_id not in racks]:
            raise KafkaError(
                ErrorCode.BROKER_ID_NOT_REGISTERED,
                f"there is no broker {unknown[0]} now",
                remedy="penstock cluster describe shows them",
            )
        racks = {broker_id: racks[broker_id] for broker_id in broker_ids}
    current = {
        partition: cluster_topics.replicas[partition] for partition in cluster_topics.choose(names)
    }
    proposed = propose(current, racks, replication_factor)
    changed = [partition for partition in proposed if proposed[partition] != current[partition]]
    session.out.note(f"{count_of(len(changed), 'partition')} of {len(proposed)} would change")
    document = moves_document(proposed)
    if output is not None:
        output.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
        session.out.note(f"the plan is in {output}: penstock log move execute {output}")
    if session.out.as_json:
        now = moves_document(current)
        session.out.document({"current": now, "proposed": document})
    elif output is None:
        print(json.dumps(document, indent=1 if sys.stdout.isatty() else None))


@command(app, "execute")
def execute(
    session: Session,
    plan: Path = PLAN,
    throttle: int | None = option(
        "--throttle", metavar="BYTES/S", help="The limit between brokers.", min=0
    ),
    log_dir_throttle: int | None = option(
        "--replica-alter-log-dirs-throttle",
        metavar="BYTES/S",
        help="The limit between log directories of a broker.",
        min=0,
    ),
    additional: bool = flag("--additional", help="Start even if other moves are in progress."),
    rollback: Path | None = option(
        "--rollback",
        metavar="FILE",
        help="Write the current state to this file, as a plan that reverts the moves.",
    ),
    wait: bool = flag("--wait", help="Wait until all moves are complete."),
    yes: bool = YES,
) -> None:
    """Start the moves of a plan."""
    moves = moves_in(plan)
    target = {partition: move.replicas for partition, move in moves.items()}
    with session.admin() as admin:
        current = ClusterTopics.read(admin).replicas
        if unknown := [partition for partition in target if partition not in current]:
            raise KafkaError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"there is no partition {unknown[0]}",
                subject=str(plan),
            )
        moving = admin.list_partition_reassignments()
        if moving and not additional:
            raise KafkaError(
                ErrorCode.REASSIGNMENT_IN_PROGRESS,
                f"{count_of(len(moving), 'partition')} are being moved",
                remedy="wait (penstock log move list), or add --additional",
            )
        before = {partition: current[partition] for partition in target}
        if rollback is not None:
            text = json.dumps(moves_document(before), indent=1)
            rollback.write_text(text + "\n", encoding="utf-8")
        changed = {
            partition: new for partition, new in target.items() if tuple(new) != before[partition]
        }
        directories = log_dir_moves(moves)
        what = f"Move {count_of(len(changed), 'partition')}"
        what += (
            f" and {count_of(len(directories), 'log directory', 'log directories')}?"
            if directories
            else "?"
        )
        session.confirm(what, yes=yes)
        throttling = throttle_changes(
            throttles(before, target), throttle, directories, log_dir_throttle
        )
        if throttling:
            admin.incremental_alter_configs(throttling)
        # A broker remembers the directory of a replica that it is going to get.
        set_log_dirs(admin, directories, before, is_new=True)
        if changed:
            admin.alter_partition_reassignments(changed)
        set_log_dirs(admin, directories, before, is_new=False)
        if wait:
            wait_for_moves(session, admin, list(changed))
    if throttle is not None or log_dir_throttle is not None:
        session.out.note("run penstock log move verify when it is done: it removes the throttle")
    session.out.table(
        ["Topic", "Partition", "From", "To"],
        [(*partition, before[partition], new) for partition, new in sorted(changed.items())],
        empty="all partitions are on the brokers of the plan",
    )


@command(app, "verify")
def verify(
    session: Session,
    plan: Path = PLAN,
    keep: bool = flag("--preserve-throttles", help="Do not remove throttles."),
) -> None:
    """Show the progress of a plan; once all moves are complete, remove the throttles.

    The exit code is 1 if a partition is neither moving nor on the brokers of the plan.
    """
    moves = moves_in(plan)
    target = {partition: move.replicas for partition, move in moves.items()}
    with session.admin() as admin:
        current = ClusterTopics.read(admin).replicas
        moving = admin.list_partition_reassignments()
        states = progress_of(current, target, moving)
        directories = log_dir_states(admin, log_dir_moves(moves))
        all_states = {*states.values(), *(state for _, _, state in directories)}
        if "in progress" not in all_states and not keep:
            remove_throttles(
                admin, {partition.topic for partition in target if partition in current}
            )
    styles = {"complete": "green", "in progress": "cyan"}
    rows: list[tuple[object, ...]] = [
        (
            *partition,
            current.get(partition),
            target[partition],
            None,
            Marked(state, styles.get(state, "red")),
        )
        for partition, state in states.items()
    ]
    rows += [
        (*directory[:2], None, directory.broker_id, path, Marked(state, styles.get(state, "red")))
        for directory, path, state in directories
    ]
    session.out.table(["Topic", "Partition", "Now", "Wanted", "Directory", "State"], rows)
    if all_states & {"different", "unknown"}:
        fail(
            "the cluster differs from the plan, and nothing moves: execute the plan",
            as_json=session.out.as_json,
        )


@command(app, "list")
def list_moves(session: Session) -> None:
    """List moves that are in progress."""
    with session.admin() as admin:
        reassignments = admin.list_partition_reassignments()
    session.out.table(
        ["Topic", "Partition", "Replicas", "Adding", "Removing"],
        [(*partition, *move) for partition, move in sorted(reassignments.items())],
        empty="nothing moves",
    )


@command(app, "cancel")
def cancel(
    session: Session,
    plan: Path | None = argument(
        "PLAN.json", default=None, help="Cancel the moves of this plan; or --all."
    ),
    every: bool = flag("--all", help="Cancel all moves."),
    yes: bool = YES,
) -> None:
    """Cancel moves that are in progress; partitions stay on their old brokers."""
    if (plan is None) != every:
        raise UsageError("name the moves: PLAN.json or --all")
    with session.admin() as admin:
        moving = admin.list_partition_reassignments()
        partitions = sorted(moving if plan is None else set(moves_in(plan)) & set(moving))
        if partitions:
            session.confirm(f"Stop moving {count_of(len(partitions), 'partition')}?", yes=yes)
            cancel_moves(admin, partitions)
    session.out.table(
        ["Topic", "Partition", "Cancelled"],
        [(*partition, True) for partition in partitions],
        empty="nothing moves",
    )


def _broker_ids(text: str) -> list[int]:
    try:
        return list(dict.fromkeys(int(part) for part in text.split(",")))
    except ValueError:
        raise UsageError(
            f"--brokers {text}", remedy="write ids with commas, such as 0,1,2"
        ) from None
