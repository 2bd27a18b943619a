"""Patterns of topics: when they are resolved, and what follows (KIP-848, SubscribedTopicRegex).

All patterns of a group are resolved at the same time, so that one change of the topics leads to
one new assignment. That they can be resolved at all is checked before a heartbeat comes here.
"""

from collections.abc import Iterable
from enum import Enum, auto

from penstock.coordinator.group.config import REGEX_BATCH_REFRESH_MIN_INTERVAL_MS
from penstock.coordinator.group.consumer.metadata_hash import metadata_hash
from penstock.coordinator.group.consumer.model import (
    UNKNOWN_TIME,
    ConsumerGroupMember,
    ConsumerGroupSoftState,
    ResolvedRegex,
)
from penstock.coordinator.group.consumer.records import (
    epoch_record,
    regex_record,
    regex_tombstone,
)
from penstock.coordinator.group.consumer.update import ConsumerGroupUpdate
from penstock.coordinator.group.events import RegexResolved, ResolveRegexes


class RegexChange(Enum):
    NONE = auto()
    UPDATED = auto()
    """What it matches is not known yet: the group is assigned anew when it is."""
    RESOLVED = auto()
    """The group is assigned anew now."""


def update_regexes(
    turn: ConsumerGroupUpdate, old: ConsumerGroupMember, new: ConsumerGroupMember, session: object
) -> RegexChange:
    """Returns how the member's pattern changed, and has the group's patterns resolved if needed.

    They are resolved with the rights of `session`, the client whose request is being handled.
    """
    group = turn.group
    before, after = old.subscribed_topic_regex, new.subscribed_topic_regex
    if before == after and not group.regexes:
        return RegexChange.NONE
    change = RegexChange.NONE if before == after else _changed(turn, before, after)
    if group.resolving:
        return change
    if not group.regexes and not after:
        return change
    last = max((r.timestamp_ms for r in group.resolved.values()), default=None)
    if last is not None and turn.now <= last + REGEX_BATCH_REFRESH_MIN_INTERVAL_MS:
        return change
    patterns = set(group.regexes)
    if before != after:
        patterns -= set(group.last_regexes([before] if before else []))
        patterns |= {after} if after else set()
    unresolved = patterns != group.resolved.keys()
    interval = turn.config.group_consumer_regex_refresh_interval_ms
    outdated = last is None or last <= group.topics_created_ms or turn.now > last + interval
    if patterns and (unresolved or outdated):
        turn.regexes.append(ResolveRegexes(group.group_id, frozenset(patterns), session))
        turn.news.append(ConsumerGroupSoftState(group.group_id, resolving=True))
    return change


def _changed(turn: ConsumerGroupUpdate, before: str | None, after: str | None) -> RegexChange:
    group = turn.group
    if before:
        gone = group.last_regexes([before])
        turn.records.extend(regex_tombstone(group.group_id, regex) for regex in gone)
    known = after in group.resolved and after in group.regexes if after else bool(before)
    return RegexChange.RESOLVED if known else RegexChange.UPDATED


def resolved(turn: ConsumerGroupUpdate, event: RegexResolved) -> None:
    """Store what the patterns match; where that has changed, the group goes to its next epoch."""
    group = turn.group
    if event.topics is None:
        turn.news.append(ConsumerGroupSoftState(group.group_id, resolving=False))
        return
    created = None if group.topics_created_ms < UNKNOWN_TIME else -1
    turn.news.append(
        ConsumerGroupSoftState(group.group_id, topics_created_ms=created, resolving=False)
    )
    bump = False
    matches = {regex: resolved.topics for regex, resolved in group.resolved.items()}
    for regex, topics in event.topics.items():
        if regex not in group.regexes:
            continue
        bump |= matches.get(regex, frozenset()) != topics
        matches[regex] = topics
        found = ResolvedRegex(topics, event.version, event.started_ms)
        turn.records.append(regex_record(group.group_id, regex, found))
    found_hash = metadata_hash(_all(group.names, matches.values()), turn.topics)
    if bump or found_hash != group.metadata_hash:
        epoch = group.group_epoch + 1
        turn.records.append(epoch_record(group.group_id, epoch, found_hash))
        turn.news.append(ConsumerGroupSoftState(group.group_id, metadata_checked=True))


def _all(names: Iterable[str], matches: Iterable[frozenset[str]]) -> set[str]:
    return set(names).union(*matches)
