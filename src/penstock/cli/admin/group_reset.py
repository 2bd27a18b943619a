"""`penstock group reset-offsets`: the command, with its requests to the cluster.

`reset_offsets` computes the new offsets.
"""

import sys
import time
from dataclasses import dataclass
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
from penstock.cli.admin.topic_selection import ClusterTopics
from penstock.cli.options import argument, flag, option, option_field
from penstock.cli.output import UsageError
from penstock.cli.session import Session
from penstock.core.errors import ErrorCode, KafkaError
from penstock.core.ids import TopicPartition

if TYPE_CHECKING:
    from penstock.client.admin.admin import Admin


@dataclass(frozen=True)
class Target:
    """The options that say where offsets are reset to, of which one must be given."""

    to_earliest: bool = option_field(flag("--to-earliest", help="The first record."))
    to_latest: bool = option_field(flag("--to-latest", help="The end."))
    to_current: bool = option_field(
        flag("--to-current", help="The committed offset; the end if there is none.")
    )
    to_offset: int | None = option_field(option("--to-offset", help="This offset."))
    to_datetime: str | None = option_field(
        option(
            "--to-datetime",
            metavar="TIME",
            help="The first record from then on: 2026-01-31T12:00:00, UTC unless it has a zone.",
        )
    )
    by_duration: str | None = option_field(
        option(
            "--by-duration",
            metavar="PnDTnHnMnS",
            help="The first record that is at most this old, such as PT30M.",
        )
    )
    shift_by: int | None = option_field(
        option("--shift-by", help="Forward by so many records; backward if negative.")
    )
    from_file: Path | None = option_field(
        option(
            "--from-file",
            metavar="CSV",
            help="Offsets as --export writes them: [GROUP,]TOPIC,PARTITION,OFFSET. - is stdin.",
        )
    )

    def rule(self) -> Rule:
        rules = [
            Rule(kind)
            for kind, is_given in (
                (RuleKind.EARLIEST, self.to_earliest),
                (RuleKind.LATEST, self.to_latest),
                (RuleKind.CURRENT, self.to_current),
                (RuleKind.FILE, self.from_file is not None),
            )
            if is_given
        ]
        # Negative timestamps have special meanings in ListOffsets.
        if self.to_datetime is not None:
            rules.append(Rule(RuleKind.TIME, max(0, parse_time_ms(self.to_datetime))))
        if self.by_duration is not None:
            since_ms = int(time.time() * 1000) - parse_duration_ms(self.by_duration)
            rules.append(Rule(RuleKind.TIME, max(0, since_ms)))
        if self.to_offset is not None:
            rules.append(Rule(RuleKind.OFFSET, self.to_offset))
        if self.shift_by is not None:
            rules.append(Rule(RuleKind.SHIFT, self.shift_by))
        if len(rules) != 1:
            raise UsageError(
                "choose one target: --to-earliest, --to-latest, --to-current, --to-offset, "
                "--to-datetime, --by-duration, --shift-by or --from-file"
            )
        return rules[0]


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
    *,
    target: Target,
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
    from_file = target.from_file
    if from_file is None and bool(topic) == all_topics:
        raise UsageError("name the offsets: --topic or --all-topics")
    rule = target.rule()
    plan: dict[str, list[Reset]] = {}
    with session.admin() as admin:
        active_states = _active_states(admin, groups or None)
        names = groups or [group for group, state in active_states.items() if state is None]
        files = {}
        if from_file is not None:
            files = parse_csv(read_text(from_file), names, str(from_file))
            names = [name for name in names if name in files]
        with session.out.progress("looking", len(names)) as step:
            for name in names:
                group_rule = rule._replace(offsets=files.get(name))
                plan[name] = _plan(admin, name, topic, group_rule)
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


def _active_states(admin: "Admin", groups: list[str] | None) -> dict[str, str | None]:
    """Returns the state of each group that has members; None for others and unknown groups."""
    from penstock.client.admin import AdminError, GroupState, GroupType

    if groups is None:
        kinds = (None, GroupType.CLASSIC, GroupType.CONSUMER)
        groups = [group.group_id for group in admin.list_groups() if group.type in kinds]
    try:
        described = admin.describe_groups(groups) if groups else {}
    except AdminError as error:
        if any(
            group_error.code is not ErrorCode.GROUP_ID_NOT_FOUND
            for group_error in error.errors.values()
        ):
            raise
        described = error.results
    idle = (GroupState.EMPTY, GroupState.DEAD)
    states: dict[str, str | None] = dict.fromkeys(groups)
    for name, value in described.items():
        if value.state not in idle:
            states[name] = value.state.value
    return states


def _plan(admin: "Admin", group: str, topics: list[str] | None, rule: Rule) -> list[Reset]:
    from penstock.client.admin import OffsetSpec

    committed = {
        partition: offset.offset
        for partition, offset in admin.list_group_offsets([group])[group].items()
        if offset is not None
    }
    partitions: list[TopicPartition]
    if rule.kind is RuleKind.FILE:
        partitions = sorted(rule.offsets or {})
    elif topics:
        partitions = ClusterTopics.read(admin).choose(topics)
    else:
        existing = admin.list_topics(include_internal=True)
        partitions = sorted(partition for partition in committed if partition.topic in existing)
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
