"""`penstock group reset-offsets`: the command, with its requests to the cluster.

`reset_offsets` computes the new offsets.
"""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.cli import complete
from penstock.cli.admin.group_offsets import offsets_at
from penstock.cli.admin.json_files import read_text
from penstock.cli.admin.reset_offsets import (
    Bounds,
    Reset,
    Rule,
    RuleKind,
    decide,
    parse_csv,
    parse_duration_ms,
    parse_time_ms,
    to_csv,
)
from penstock.cli.names import choose_partitions
from penstock.cli.options import argument, flag, option
from penstock.cli.output import UsageError
from penstock.cli.session import Session
from penstock.core.errors import ErrorCode, KafkaError
from penstock.core.ids import TopicPartition

if TYPE_CHECKING:
    from penstock.client.admin.admin import Admin


def reset_offsets(
    session: Session,
    groups: list[str] | None = argument(
        "GROUP",
        default=None,
        help="Groups without running members.",
        autocompletion=complete.groups,
    ),
    all_groups: bool = flag("--all-groups", help="All groups without members."),
    topic: list[str] | None = option(
        "--topic",
        metavar="TOPIC[:PARTITIONS]",
        help="The partitions, such as orders or orders:0,2-4; may be repeated.",
        autocompletion=complete.topics,
    ),
    all_topics: bool = flag("--all-topics", help="All partitions that the group has committed."),
    to_earliest: bool = flag("--to-earliest", help="The first record."),
    to_latest: bool = flag("--to-latest", help="The end."),
    to_current: bool = flag("--to-current", help="The committed offset; the end if there is none."),
    to_offset: int | None = option("--to-offset", help="This offset."),
    to_datetime: str | None = option(
        "--to-datetime",
        metavar="TIME",
        help="The first record from then on: 2026-01-31T12:00:00, UTC unless it has a zone.",
    ),
    by_duration: str | None = option(
        "--by-duration",
        metavar="PnDTnHnMnS",
        help="The first record that is at most this old, such as PT30M.",
    ),
    shift_by: int | None = option(
        "--shift-by", help="Forward by so many records; backward if negative."
    ),
    from_file: Path | None = option(
        "--from-file",
        metavar="CSV",
        help="Offsets as --export writes them: [GROUP,]TOPIC,PARTITION,OFFSET. - is stdin.",
    ),
    execute: bool = flag(
        "--execute", help="Reset the offsets; without it, only show the new ones."
    ),
    export: bool = flag("--export", help="Print CSV for --from-file instead of a table."),
) -> None:
    """Move the committed offsets of groups. A dry run unless --execute is given.

    New offsets stay between the first record and the end of the partition.
    """
    if bool(groups) == all_groups:
        raise UsageError("name the groups: GROUP… or --all-groups")
    if from_file is None and bool(topic) == all_topics:
        raise UsageError("name the offsets: --topic or --all-topics")
    rule = _rule(
        to_earliest, to_latest, to_current, to_offset, to_datetime, by_duration, shift_by, from_file
    )
    plan: dict[str, list[Reset]] = {}
    with session.admin() as admin:
        active_states = _active_states(admin, groups or None)
        names = groups or [item for item, state in active_states.items() if state is None]
        files = {}
        if from_file is not None:
            files = parse_csv(read_text(from_file), names, str(from_file))
            names = [name for name in names if name in files]
        with session.out.progress("looking", len(names)) as step:
            for name in names:
                this = rule._replace(offsets=files.get(name))
                plan[name] = _plan(admin, name, topic, this)
                step(1)
        active = {
            name: active_states[name] for name in names if active_states.get(name) is not None
        }
        if execute:
            if active:
                name, state = next(iter(active.items()))
                raise KafkaError(
                    ErrorCode.NON_EMPTY_GROUP,
                    "offsets can only be reset while it has no members",
                    subject=f"group {name} is {state}",
                    remedy=f"stop them first (penstock group describe --members {name} shows them)",
                )
            with session.out.progress("resetting", len(plan)) as step:
                for name, resets in plan.items():
                    admin.alter_group_offsets(
                        name, {reset.partition: reset.new for reset in resets}
                    )
                    step(1)
    for name, state in active.items():
        session.out.note(f"group {name} is {state}: stop its members before --execute")
    _print(session, plan, execute=execute, export=export)


def _print(session: Session, plan: dict[str, list[Reset]], *, execute: bool, export: bool) -> None:
    pairs = [(name, reset) for name, resets in plan.items() for reset in resets]
    if export and not session.out.as_json:
        sys.stdout.write(to_csv(pairs, with_group=len(plan) > 1))
        return
    session.out.table(
        ["Group", "Topic", "Partition", "Current offset", "New offset", "Note", "Executed"],
        [
            (name, *pair.partition, pair.current, pair.new, pair.note, execute)
            for name, pair in pairs
        ],
        empty="nothing to reset",
    )
    if not execute and pairs:
        session.out.note("nothing was changed: add --execute to do it")


def _rule(
    to_earliest: bool,
    to_latest: bool,
    to_current: bool,
    to_offset: int | None,
    to_datetime: str | None,
    by_duration: str | None,
    shift_by: int | None,
    from_file: Path | None,
) -> Rule:
    rules: list[Rule] = []
    if to_earliest:
        rules.append(Rule(RuleKind.EARLIEST))
    if to_latest:
        rules.append(Rule(RuleKind.LATEST))
    if to_current:
        rules.append(Rule(RuleKind.CURRENT))
    if to_offset is not None:
        rules.append(Rule(RuleKind.OFFSET, to_offset))
    if to_datetime is not None:
        rules.append(Rule(RuleKind.TIME, max(0, parse_time_ms(to_datetime))))
    if by_duration is not None:
        since = _now_ms() - parse_duration_ms(by_duration)
        # Negative timestamps have special meanings in ListOffsets.
        rules.append(Rule(RuleKind.TIME, max(0, since)))
    if shift_by is not None:
        rules.append(Rule(RuleKind.SHIFT, shift_by))
    if from_file is not None:
        rules.append(Rule(RuleKind.FILE))
    if len(rules) != 1:
        raise UsageError(
            "choose one target: --to-earliest, --to-latest, --to-current, --to-offset, "
            "--to-datetime, --by-duration, --shift-by or --from-file"
        )
    return rules[0]


def _active_states(admin: "Admin", groups: list[str] | None) -> dict[str, str | None]:
    """Returns the state of each group that has members; None for others and unknown groups."""
    from penstock.client.admin import AdminError, GroupState, GroupType

    if groups is None:
        kinds = (None, GroupType.CLASSIC, GroupType.CONSUMER)
        groups = [group.group_id for group in admin.list_groups() if group.type in kinds]
    try:
        described = admin.describe_groups(groups) if groups else {}
    except AdminError as error:
        if any(item.code is not ErrorCode.GROUP_ID_NOT_FOUND for item in error.errors.values()):
            raise
        described = error.results
    idle = (GroupState.EMPTY, GroupState.DEAD)
    result: dict[str, str | None] = dict.fromkeys(groups)
    for name, value in described.items():
        if value.state not in idle:
            result[name] = value.state.value
    return result


def _plan(admin: "Admin", group: str, topics: list[str] | None, rule: Rule) -> list[Reset]:
    from penstock.client.admin import OffsetSpec

    committed = {
        item: offset.offset
        for item, offset in admin.list_group_offsets([group])[group].items()
        if offset is not None
    }
    listed = admin.list_topics(include_internal=True)
    partitions: list[TopicPartition]
    if rule.kind is RuleKind.FILE:
        partitions = sorted(rule.offsets or {})
    elif topics:
        described = admin.describe_topics(listed)
        counts = {item.name: len(item.partitions) for item in described.values()}
        internal = [name for name, item in listed.items() if item.is_internal]
        partitions = choose_partitions(topics, counts, internal)
    else:
        partitions = sorted(item for item in committed if item.topic in listed)
    earliest = offsets_at(admin, partitions, OffsetSpec.EARLIEST)
    latest = offsets_at(admin, partitions, OffsetSpec.LATEST)
    times = offsets_at(admin, partitions, rule.number) if rule.kind is RuleKind.TIME else {}
    missing = [
        partition
        for partition in partitions
        if partition not in earliest or partition not in latest
    ]
    if missing:
        raise KafkaError(
            ErrorCode.LEADER_NOT_AVAILABLE,
            f"the offsets of {missing[0]} are not available",
            remedy=f"see penstock topic describe {missing[0].topic}",
        )
    return [
        decide(
            rule,
            partition,
            Bounds(
                earliest[partition],
                latest[partition],
                committed.get(partition),
                times.get(partition),
            ),
        )
        for partition in partitions
    ]


def _now_ms() -> int:
    import time

    return int(time.time() * 1000)
