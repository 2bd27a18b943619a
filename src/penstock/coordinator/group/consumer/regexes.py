"""Subscriptions by pattern (KIP-848, SubscribedTopicRegex): when patterns are resolved.

All patterns of a group are resolved at the same time, so that one change of the topics leads to
one new assignment. The host checks that a pattern is valid before a heartbeat reaches the shard.
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
    """How a request changed a member's pattern."""

    NONE = auto()
    UPDATED = auto()
    """The new pattern is not resolved yet: the group gets a new assignment once it is."""
    RESOLVED = auto()
    """The new pattern is resolved: the group gets a new assignment now."""


def update_regexes(
    update: ConsumerGroupUpdate, old: ConsumerGroupMember, new: ConsumerGroupMember, session: object
) -> RegexChange:
    """Returns how the member's pattern changed, and has the group's patterns resolved if needed.

    They are resolved with the rights of `session`, the client whose request is being handled.
    """
    group = update.group
    before, after = old.subscribed_topic_regex, new.subscribed_topic_regex
    if before == after and not group.regexes:
        return RegexChange.NONE
    change = RegexChange.NONE if before == after else _replace_regex(update, before, after)
    if group.resolving:
        return change
    if not group.regexes and not after:
        return change
    last = max((r.timestamp_ms for r in group.resolved.values()), default=None)
    # It is in the future if the clock was set back, or that of the last coordinator was ahead.
    is_recent = last is not None and 0 <= update.now - last <= REGEX_BATCH_REFRESH_MIN_INTERVAL_MS
    if is_recent:
        return change
    patterns = set(group.regexes)
    if before != after:
        patterns -= set(group.last_regexes([before] if before else []))
        patterns |= {after} if after else set()
    unresolved = patterns != group.resolved.keys()
    interval = update.config.group_consumer_regex_refresh_interval_ms
    outdated = (
        last is None or last <= group.topics_created_ms or not 0 <= update.now - last <= interval
    )
    if patterns and (unresolved or outdated):
        update.regexes.append(ResolveRegexes(group.group_id, frozenset(patterns), session))
        update.state_updates.append(ConsumerGroupSoftState(group.group_id, resolving=True))
    return change


def _replace_regex(
    update: ConsumerGroupUpdate, before: str | None, after: str | None
) -> RegexChange:
    group = update.group
    if before:
        unused = group.last_regexes([before])
        update.records.extend(regex_tombstone(group.group_id, regex) for regex in unused)
    is_resolved = after in group.resolved and after in group.regexes if after else bool(before)
    return RegexChange.RESOLVED if is_resolved else RegexChange.UPDATED


def store_resolved(update: ConsumerGroupUpdate, event: RegexResolved) -> None:
    """Stores the topics that match; the group goes to its next epoch if they have changed."""
    group = update.group
    if event.topics is None:
        update.state_updates.append(ConsumerGroupSoftState(group.group_id, resolving=False))
        return
    created = None if group.topics_created_ms < UNKNOWN_TIME else -1
    update.state_updates.append(
        ConsumerGroupSoftState(group.group_id, topics_created_ms=created, resolving=False)
    )
    bump = False
    matches = {regex: resolved.topics for regex, resolved in group.resolved.items()}
    for regex, topics in event.topics.items():
        if regex not in group.regexes:
            continue
        bump |= matches.get(regex, frozenset()) != topics
        matches[regex] = topics
        resolved = ResolvedRegex(topics, event.version, event.started_ms)
        update.records.append(regex_record(group.group_id, regex, resolved))
    new_hash = metadata_hash(_all(group.names, matches.values()), update.topics)
    if bump or new_hash != group.metadata_hash:
        epoch = group.group_epoch + 1
        update.records.append(epoch_record(group.group_id, epoch, new_hash))
        update.state_updates.append(ConsumerGroupSoftState(group.group_id, metadata_checked=True))


def _all(names: Iterable[str], matches: Iterable[frozenset[str]]) -> set[str]:
    return set(names).union(*matches)
