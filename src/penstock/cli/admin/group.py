"""`penstock group`: what kafka-consumer-groups.sh and kafka-groups.sh do."""

from collections.abc import Mapping
from enum import StrEnum
from typing import TYPE_CHECKING

from penstock.cli import complete
from penstock.cli.admin import group_reset
from penstock.cli.admin.group_offsets import OffsetRow, rows_of_groups
from penstock.cli.admin.topic_selection import partition_counts
from penstock.cli.app import new_group
from penstock.cli.names import and_more, choose_partitions, count_of, pattern
from penstock.cli.options import argument, flag, option
from penstock.cli.output import Marked, Output, UsageError
from penstock.cli.session import YES, Session, command
from penstock.core.errors import ErrorCode, KafkaError
from penstock.core.ids import TopicPartition

if TYPE_CHECKING:
    from penstock.client.admin import GroupDescription, GroupListing
    from penstock.client.admin.admin import Admin

app = new_group("Consumer groups: list, describe with lag, delete, reset offsets.")
command(app, "reset-offsets")(group_reset.reset_offsets)

GROUPS = argument("GROUP", default=None, help="Names of groups.", autocompletion=complete.groups)
ONE_GROUP = argument("GROUP", help="The group.", autocompletion=complete.groups)
MATCH = option(
    "--match", metavar="REGEX", help="Groups whose whole name matches a regular expression."
)
ALL_GROUPS = flag("--all", help="All groups.")


class State(StrEnum):
    PREPARING_REBALANCE = "preparing-rebalance"
    COMPLETING_REBALANCE = "completing-rebalance"
    STABLE = "stable"
    DEAD = "dead"
    EMPTY = "empty"
    ASSIGNING = "assigning"
    RECONCILING = "reconciling"
    NOT_READY = "not-ready"


class Type(StrEnum):
    CONSUMER = "consumer"
    CLASSIC = "classic"
    SHARE = "share"
    STREAMS = "streams"


@command(app, "list")
def list_groups(
    session: Session,
    state: list[State] | None = option("--state", help="Only in this state; may be repeated."),
    kind: list[Type] | None = option("--type", help="Only of this type; may be repeated."),
    match: str | None = MATCH,
    names_only: bool = flag("--names", "-q", help="Print only names, one per line."),
) -> None:
    """List groups."""
    from penstock.client.admin import GroupState, GroupType

    with session.admin() as admin:
        listed = admin.list_groups(
            states=[GroupState[chosen_state.name] for chosen_state in state or []],
            types=[GroupType[chosen_type.name] for chosen_type in kind or []],
        )
    matches = pattern(match) if match is not None else lambda name: True
    listed = [group for group in listed if matches(group.group_id)]
    if names_only:
        names = [group.group_id for group in listed]
        session.out.done(names, names)
        return
    session.out.table(
        ["Group", "Type", "Protocol", "State"],
        [
            (group.group_id, group.type, group.protocol_type or None, group.state)
            for group in listed
        ],
        empty="there are no groups",
    )


@command(app, "describe")
def describe(
    session: Session,
    groups: list[str] | None = GROUPS,
    every: bool = ALL_GROUPS,
    match: str | None = MATCH,
    members: bool = flag("--members", help="Members and their partitions."),
    state: bool = flag("--state", help="State, coordinator, assignor."),
    verbose: bool = flag("--verbose", "-v", help="Epochs, instance ids, metadata, partitions."),
) -> None:
    """Show committed offset, log end offset and lag of each partition, and its consumer (C2)."""
    if members and state:
        raise UsageError("choose one of --members and --state; --json has both")
    with session.admin() as admin:
        described = admin.describe_groups(_chosen(admin, groups, every=every, match=match))
        offsets: dict[str, list[OffsetRow]] = {}
        if session.out.as_json or not (members or state):
            offsets = rows_of_groups(admin, described)
    if session.out.as_json:
        session.out.document(
            [group._asdict() | {"offsets": offsets[name]} for name, group in described.items()]
        )
    elif state:
        _print_states(session.out, described, verbose)
    elif members:
        _print_members(session.out, described, verbose)
    else:
        _print_offsets(session.out, described, offsets, verbose)


@command(app, "delete")
def delete(
    session: Session,
    groups: list[str] | None = GROUPS,
    every: bool = ALL_GROUPS,
    match: str | None = MATCH,
    yes: bool = YES,
) -> None:
    """Delete groups that have no members, with their offsets."""
    with session.admin() as admin:
        names = _chosen(admin, groups, every=every, match=match)
        if names:
            what = f"Delete {count_of(len(names), 'group')} with all offsets: {and_more(names)}?"
            session.confirm(what, yes=yes)
            admin.delete_groups(names)
    session.out.done(
        [f"deleted: {name}" for name in names],
        [{"group_id": name, "deleted": True} for name in names],
    )


@command(app, "delete-offsets")
def delete_offsets(
    session: Session,
    group: str = ONE_GROUP,
    topic: list[str] = option(
        "--topic",
        default=...,
        metavar="TOPIC[:PARTITIONS]",
        help="The partitions, such as orders or orders:0,2-4; may be repeated.",
        autocompletion=complete.topics,
    ),
    yes: bool = YES,
) -> None:
    """Delete committed offsets of topics that the group does not read any more."""
    with session.admin() as admin:
        committed = admin.list_group_offsets([group]).get(group, {})
        counts = partition_counts(committed)
        partitions = [
            partition for partition in choose_partitions(topic, counts) if partition in committed
        ]
        what = f"Delete {count_of(len(partitions), 'offset')} of group {group}"
        session.confirm(f"{what}: {and_more(partitions)}?", yes=yes)
        admin.delete_group_offsets(group, partitions)
    session.out.table(
        ["Group", "Topic", "Partition", "Deleted"],
        [(group, partition.topic, partition.partition, True) for partition in partitions],
    )


@command(app, "remove-members")
def remove_members(
    session: Session,
    group: str = ONE_GROUP,
    instance: list[str] | None = option(
        "--instance", help="A static member, by its group.instance.id."
    ),
    member: list[str] | None = option("--member", help="A member, by its member id."),
    every: bool = flag("--all", help="All members."),
    reason: str | None = option("--reason", help="The reason, which the broker logs."),
    yes: bool = YES,
) -> None:
    """Remove members from a group; those that still run rejoin automatically."""
    from penstock.client.admin import MemberToRemove

    to_remove = [MemberToRemove(group_instance_id=instance_id) for instance_id in instance or []]
    to_remove += [MemberToRemove(member_id=member_id) for member_id in member or []]
    if bool(to_remove) == every:
        raise UsageError("name the members: --instance, --member or --all")
    how_many = count_of(len(to_remove), "member") if to_remove else "all members"
    session.confirm(f"Remove {how_many} from group {group}?", yes=yes)
    with session.admin() as admin:
        admin.remove_members(group, to_remove or None, reason=reason)
    session.out.done(
        f"removed {how_many} of {group}",
        {
            "group_id": group,
            "removed": [member.group_instance_id or member.member_id for member in to_remove],
        },
    )


@command(app, "validate-regex")
def validate_regex(
    session: Session,
    regex: str = argument("regex", help="The regular expression."),
) -> None:
    """Check a pattern of topics as brokers understand it (RE2), without a request to a broker."""
    import re2

    options = re2.Options()
    options.log_errors = False
    try:
        re2.compile(regex, options)
    except re2.error as error:
        reason = error.args[0] if error.args else error
        reason = reason.decode() if isinstance(reason, bytes) else reason
        raise KafkaError(
            ErrorCode.INVALID_REGULAR_EXPRESSION,
            f"'{regex}' is not an RE2 regular expression: {reason}",
        ) from None
    session.out.done(
        f"'{regex}' is a valid RE2 regular expression", {"regex": regex, "valid": True}
    )


def _chosen(
    admin: "Admin", groups: list[str] | None, *, every: bool, match: str | None
) -> list[str]:
    if sum((bool(groups), every, match is not None)) != 1:
        raise UsageError("name the groups: GROUP…, --match or --all")
    if groups:
        return list(dict.fromkeys(groups))
    matches = pattern(match) if match is not None else lambda name: True
    return [
        group.group_id
        for group in admin.list_groups()
        if _is_consumer_group(group) and matches(group.group_id)
    ]


def _is_consumer_group(group: "GroupListing") -> bool:
    """Returns whether it is a group of consumers: others are described by other requests."""
    from penstock.client.admin import GroupType

    return group.type in (None, GroupType.CLASSIC, GroupType.CONSUMER)


def _state(state: str) -> Marked:
    return Marked(state, {"Stable": "green", "Empty": "yellow", "Dead": "red"}.get(state, "cyan"))


def _print_states(out: Output, groups: "Mapping[str, GroupDescription]", verbose: bool) -> None:
    columns = ["Group", "Type", "State", "Coordinator", "Assignor", "Members"]
    if verbose:
        columns += ["Epoch", "Target epoch"]
    rows = []
    for name, group in groups.items():
        row = [name, group.type, _state(group.state), group.coordinator, group.assignor or None]
        row.append(len(group.members))
        rows.append([*row, group.group_epoch, group.target_assignment_epoch] if verbose else row)
    out.table(columns, rows, empty="there are no groups")


def _print_members(out: Output, groups: "Mapping[str, GroupDescription]", verbose: bool) -> None:
    columns = ["Group", "Member", "Instance", "Host", "Client", "Partitions"]
    if verbose:
        columns += ["Epoch", "Assignment", "Target"]
    rows: list[list[object]] = []
    for name, group in groups.items():
        if not group.members:
            out.note(f"group {name} has no members; it is {group.state}")
        for member in group.members:
            row = [
                name,
                member.member_id,
                member.group_instance_id,
                member.client_host,
                member.client_id,
            ]
            more: list[object] = [len(member.assignment)]
            if verbose:
                more += [member.member_epoch, _partitions(member.assignment)]
                more.append(
                    None
                    if member.target_assignment is None
                    else _partitions(member.target_assignment)
                )
            rows.append([*row, *more])
    if rows:
        out.table(columns, rows)


def _partitions(partitions: tuple[TopicPartition, ...]) -> str | None:
    """Returns partitions as text: `orders:0,1 other:3`."""
    by_topic: dict[str, list[str]] = {}
    for partition in partitions:
        by_topic.setdefault(partition.topic, []).append(str(partition.partition))
    return " ".join(f"{topic}:{','.join(numbers)}" for topic, numbers in by_topic.items()) or None


def _print_offsets(
    out: Output,
    groups: "Mapping[str, GroupDescription]",
    offsets: Mapping[str, list[OffsetRow]],
    verbose: bool,
) -> None:
    columns = ["Group", "Topic", "Partition", "Current offset", "Log end offset", "Lag"]
    columns += ["Member", "Host", "Client"]
    if verbose:
        columns += ["Instance", "Leader epoch", "Metadata"]
    rows = []
    for name, group in groups.items():
        if not group.members:
            out.note(f"group {name} has no active members; it is {group.state}")
        for offset in offsets[name]:
            lag = Marked(offset.lag, "yellow") if offset.lag else offset.lag
            row = [name, *offset[:4], lag, offset.member_id, offset.host, offset.client_id]
            if verbose:
                row += [offset.group_instance_id, offset.leader_epoch, offset.metadata]
            rows.append(row)
    out.table(columns, rows, empty="nothing is committed and nothing is assigned")
