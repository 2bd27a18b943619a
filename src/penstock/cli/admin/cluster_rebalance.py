"""`penstock cluster rebalance`: proposes and runs a plan that evens out leaders and disks (R8)."""

import time
from collections import Counter
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Final

from penstock.cli.admin.cluster_status import describe_all_topics
from penstock.cli.admin.reassignment import progress_of, throttles
from penstock.cli.admin.reassignment_steps import (
    cancel_moves,
    log_dir_states,
    remove_throttles,
    set_log_dirs,
    throttle_changes,
    wait_for_moves,
)
from penstock.cli.admin.rebalance_plan import (
    ClusterLoad,
    RebalancePlan,
    loads_by_broker,
    plan_rebalance,
)
from penstock.cli.admin.topic_selection import ClusterTopics
from penstock.cli.names import count_of
from penstock.cli.options import flag, option
from penstock.cli.output import UsageError
from penstock.cli.session import YES, Session
from penstock.core.errors import ErrorCode, KafkaError
from penstock.core.ids import TopicPartition

if TYPE_CHECKING:
    from penstock.client.admin import TopicPartitionReplica
    from penstock.client.admin.admin import Admin

_POLL_S: Final = 0.5
_METADATA_DELAY_S: Final = 10.0
"""How long the metadata of brokers may be behind the controller's."""


def rebalance(
    session: Session,
    execute: bool = flag("--execute", help="Run the plan; without it, the plan is printed."),
    cancel: bool = flag("--cancel", help="Stop all moves that are in progress."),
    leaders_only: bool = flag("--leaders-only", help="Move no replicas."),
    throttle: int | None = option(
        "--throttle", metavar="BYTES/S", help="The limit of moves, for each broker.", min=1
    ),
    tolerance: int = option(
        "--tolerance",
        default=10,
        min=0,
        max=100,
        metavar="PERCENT",
        help="How far the bytes of a broker may be from the average.",
    ),
    yes: bool = YES,
) -> None:
    """Even out leaders, and then disks, with as little movement as possible.

    Replicas move from full brokers and log directories to empty ones. The
    number of replicas stays, and no partition gets fewer racks.
    """
    if execute and cancel:
        raise UsageError("--execute and --cancel exclude each other")
    with session.admin() as admin:
        moving = sorted(admin.list_partition_reassignments())
        if cancel:
            if moving:
                session.confirm(f"Stop moving {count_of(len(moving), 'partition')}?", yes=yes)
                cancel_moves(admin, moving)
            session.out.table(
                ["Topic", "Partition", "Cancelled"],
                [(*partition, True) for partition in moving],
                empty="nothing moves",
            )
            return
        if moving:
            raise KafkaError(
                ErrorCode.REASSIGNMENT_IN_PROGRESS,
                f"{count_of(len(moving), 'partition')} are being moved",
                remedy="wait (penstock log move list), or stop them: penstock cluster rebalance "
                "--cancel",
            )
        load = read_load(admin)
        plan = plan_rebalance(load, tolerance=tolerance / 100, moves_replicas=not leaders_only)
        if load.fixed:
            session.out.note(
                f"{count_of(len(load.fixed), 'partition')} with replicas that are not in sync "
                "stay as they are: see penstock cluster status"
            )
        if execute and not plan.is_empty:
            session.confirm(f"{_summary(plan)}?", yes=yes)
            _execute(session, admin, load, plan, throttle)
    _print(session, load, plan, executed=execute)


def read_load(admin: "Admin", brokers: Collection[int] | None = None) -> ClusterLoad:
    """Reads what the plan depends on, of these brokers, or of all that are up."""
    nodes = [
        node for node in admin.describe_cluster().nodes if brokers is None or node.id in brokers
    ]
    partitions = {
        TopicPartition(topic.name, partition.partition): partition
        for topic in describe_all_topics(admin)
        for partition in topic.partitions
    }
    log_dirs: dict[int, dict[str, list[TopicPartition]]] = {}
    sizes: dict[TopicPartition, int] = {}
    for broker, directories in admin.describe_log_dirs([node.id for node in nodes]).items():
        usable = {
            path: directory
            for path, directory in directories.items()
            if directory.error is None and not directory.is_cordoned
        }
        log_dirs[broker] = {
            path: [name for name, replica in directory.replicas.items() if not replica.is_future]
            for path, directory in usable.items()
        }
        for directory in usable.values():
            for name, replica in directory.replicas.items():
                sizes[name] = max(sizes.get(name, 0), replica.size)
    return ClusterLoad(
        {name: partition.replicas for name, partition in partitions.items()},
        {name: partition.leader for name, partition in partitions.items()},
        sizes,
        {node.id: node.rack for node in nodes},
        log_dirs,
        [
            name
            for name, partition in partitions.items()
            if partition.leader is None or set(partition.isr) != set(partition.replicas)
        ],
    )


def _execute(
    session: Session, admin: "Admin", load: ClusterLoad, plan: RebalancePlan, throttle: int | None
) -> None:
    """First leaders, which costs nothing; then the moves; then leaders of what has moved."""
    try:
        if plan.reorders:
            _reassign(session, admin, {name: move.after for name, move in plan.reorders.items()})
        _elect(admin, [name for name in plan.elections if name not in plan.moves])
        _move(session, admin, load, plan, throttle)
        _elect(admin, [name for name in plan.elections if name in plan.moves])
    except KeyboardInterrupt:
        session.out.note(
            "moves that have started continue; to stop them: penstock cluster rebalance --cancel"
        )
        raise


def _reassign(
    session: Session, admin: "Admin", replicas: Mapping[TopicPartition, tuple[int, ...]]
) -> None:
    admin.alter_partition_reassignments(dict(replicas))
    wait_for_moves(session, admin, list(replicas))
    # The controller knows the end of a move before the brokers that describe the topics.
    deadline = time.monotonic() + _METADATA_DELAY_S
    while different := _different(admin, replicas):
        if time.monotonic() > deadline:
            raise KafkaError(
                ErrorCode.NO_REASSIGNMENT_IN_PROGRESS,
                f"{count_of(len(different), 'partition')} were not moved: somebody cancelled it, "
                "or moved them elsewhere",
                remedy="see the new plan: penstock cluster rebalance",
            )
        time.sleep(_POLL_S)


def _different(
    admin: "Admin", replicas: Mapping[TopicPartition, tuple[int, ...]]
) -> list[TopicPartition]:
    """Returns the partitions that have other replicas than these."""
    states = progress_of(ClusterTopics.read(admin).replicas, replicas, ())
    return [name for name, state in states.items() if state == "different"]


def _elect(admin: "Admin", partitions: list[TopicPartition]) -> None:
    from penstock.client.admin.model_topics import ElectionType

    if partitions:
        admin.elect_leaders(ElectionType.PREFERRED, partitions)


def _move(
    session: Session, admin: "Admin", load: ClusterLoad, plan: RebalancePlan, throttle: int | None
) -> None:
    """Moves replicas to other brokers and log directories; the throttles are removed at the end."""
    from penstock.client.admin import TopicPartitionReplica

    target = {name: move.after for name, move in plan.moves.items()}
    directories = {
        TopicPartitionReplica(*move.partition, move.broker): move.after for move in plan.log_dirs
    }
    if not target and not directories:
        return
    before = {name: tuple(replicas) for name, replicas in load.assignment.items()}
    if throttle is not None:
        changes = throttle_changes(throttles(before, target), throttle, directories, throttle)
        admin.incremental_alter_configs(changes)
    # A broker remembers the directory of a replica that it is going to get.
    set_log_dirs(admin, directories, before, is_new=True)
    set_log_dirs(admin, directories, before, is_new=False)
    if target:
        _reassign(session, admin, target)
    _wait_for_log_dirs(admin, directories)
    if throttle is not None:
        remove_throttles(
            admin,
            {name.topic for name in target} | {move.partition.topic for move in plan.log_dirs},
        )


def _wait_for_log_dirs(admin: "Admin", directories: "Mapping[TopicPartitionReplica, str]") -> None:
    while any(state == "in progress" for *_, state in log_dir_states(admin, directories)):
        time.sleep(_POLL_S)


# --- output


def _summary(plan: RebalancePlan) -> str:
    return (
        f"Elect {count_of(len(plan.elections), 'leader')}, move "
        f"{count_of(len(plan.moves), 'partition')} and "
        f"{count_of(len(plan.log_dirs), 'log directory', 'log directories')}, "
        f"copy {plan.size:,} bytes"
    )


def _print(session: Session, load: ClusterLoad, plan: RebalancePlan, *, executed: bool) -> None:
    out = session.out
    changes = {**plan.reorders, **plan.moves}
    after = {
        name: changes[name].after if name in changes else replicas
        for name, replicas in load.assignment.items()
    }
    leaders_after = {**load.leaders, **{name: after[name][0] for name in plan.elections}}
    leaders, new_leaders = Counter(load.leaders.values()), Counter(leaders_after.values())
    loads, new_loads = loads_by_broker(load.assignment, load), loads_by_broker(after, load)
    brokers = [
        (broker, leaders[broker], new_leaders[broker], loads[broker], new_loads[broker])
        for broker in sorted(load.racks)
    ]
    steps: list[tuple[object, ...]] = [
        *(("leader", *name, move.before, move.after, 0) for name, move in plan.reorders.items()),
        *(
            ("election", *name, load.leaders[name], after[name][0], 0)
            for name in plan.elections
            if name not in changes
        ),
        *(("move", *name, move.before, move.after, move.size) for name, move in plan.moves.items()),
        *(
            (
                "log directory",
                *move.partition,
                move.before,
                f"{move.broker}:{move.after}",
                move.size,
            )
            for move in plan.log_dirs
        ),
    ]
    columns = ["Step", "Topic", "Partition", "From", "To", "Bytes"]
    if out.as_json:
        broker_fields = ("broker", "leaders", "leaders_after", "load", "load_after")
        out.document(
            {
                "executed": executed,
                "bytes": plan.size,
                "brokers": [dict(zip(broker_fields, row, strict=True)) for row in brokers],
                "steps": [dict(zip(map(str.lower, columns), step, strict=True)) for step in steps],
            }
        )
        return
    out.table(["Broker", "Leaders", "Leaders then", "Load", "Load then"], brokers)
    out.line("")
    out.table(columns, steps, empty="nothing to do: leaders and disks are even")
    if steps:
        out.note("done" if executed else f"{_summary(plan)}: penstock cluster rebalance --execute")
