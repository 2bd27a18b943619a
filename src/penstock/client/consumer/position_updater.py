"""Gives every assigned partition a position: from a commit, a reset, or a validated old one."""

import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any

from penstock.client.consumer.list_offsets import OffsetLookup, by_leader_of
from penstock.client.consumer.membership import Membership
from penstock.client.consumer.positions import (
    LATEST_TIMESTAMP,
    FetchPosition,
    LeaderAndEpoch,
    LogTruncation,
    LogTruncationError,
    OffsetReset,
)
from penstock.client.consumer.subscriptions import SubscriptionState
from penstock.client.settings import ConsumerOptions
from penstock.core.errors import KafkaError, UnsupportedVersionError
from penstock.core.ids import TopicPartition
from penstock.net.client.network_client import NetworkClient

logger = logging.getLogger(__name__)

Work = Callable[[], Coroutine[Any, Any, None]]


class PositionUpkeep:
    """Belongs to the client's loop. `pump` starts what is due."""

    def __init__(
        self,
        network: NetworkClient,
        subscriptions: SubscriptionState,
        lookup: OffsetLookup,
        group: Membership | None,
        settings: ConsumerOptions,
        *,
        start: Callable[[str, Work], bool],
        report: Callable[[KafkaError], None],
    ) -> None:
        """`start` runs work under a name unless one of that name runs already."""
        self._network = network
        self._subscriptions = subscriptions
        self._lookup = lookup
        self._group = group
        self._settings = settings
        self._start = start
        self._report = report
        self._not_before_ms = 0

    def pump(self, now_ms: int, *, errors_wait: bool) -> int | None:
        """Start what is due, though nothing that would only fail again before poll has seen why.

        In how many ms to call again, if nothing happens.
        """
        subscriptions = self._subscriptions
        if errors_wait or subscriptions.has_all_fetch_positions():
            return None
        new = subscriptions.initializing_partitions()
        if new and now_ms >= self._not_before_ms:
            self._start("initial positions", lambda: self._initialize(new))
        resets = self._resets(now_ms)
        if resets and self._start("resets", lambda: self._reset(resets)):
            self._hold(resets, self._settings["request_timeout_ms"])
        for node, positions in self._validations(now_ms).items():
            if self._start(f"validation at {node}", _later(self._validate, node, positions)):
                self._hold(positions, self._settings["request_timeout_ms"])
        return self._settings["retry_backoff_ms"]

    def _hold(self, partitions: Mapping[TopicPartition, object], ms: int) -> None:
        until = self._network.clock.monotonic_ms() + ms
        self._subscriptions.set_next_retry(partitions, until)

    async def _initialize(self, partitions: Sequence[TopicPartition]) -> None:
        backoff_ms = self._settings["retry_backoff_ms"]
        self._not_before_ms = self._network.clock.monotonic_ms() + backoff_ms
        without = list(partitions)
        if self._group is not None:
            deadline_ms = (
                self._network.clock.monotonic_ms() + self._settings["default_api_timeout_ms"]
            )
            try:
                committed = await self._group.committed(list(partitions), deadline_ms)
            except KafkaError as error:
                if not error.code.retriable:
                    raise
                logger.debug("committed offsets: %s", error.message)
                return
            cluster = self._network.metadata.cluster
            without = []
            for each in partitions:
                commit = committed.get(each)
                if commit is None:
                    without.append(each)
                    continue
                known = cluster.partition(each)
                leader = (
                    LeaderAndEpoch()
                    if known is None
                    else LeaderAndEpoch(known.leader, known.leader_epoch)
                )
                position = FetchPosition(commit.offset, commit.leader_epoch, leader)
                self._subscriptions.seek_initial(each, position)
        self._subscriptions.reset_initializing(without)
        self._not_before_ms = 0

    def _resets(self, now_ms: int) -> dict[TopicPartition, OffsetReset]:
        found: dict[TopicPartition, OffsetReset] = {}
        for partition in self._subscriptions.partitions_needing_reset(now_ms):
            reset = self._subscriptions.reset_strategy(partition)
            if reset is not None:
                found[partition] = reset
        return found

    async def _reset(self, resets: Mapping[TopicPartition, OffsetReset]) -> None:
        wall_ms = self._network.clock.now_ms()
        timestamps = {each: reset.timestamp(wall_ms) for each, reset in resets.items()}
        by_leader, failed = by_leader_of(self._network.metadata.cluster, timestamps)
        try:
            for node, wanted in by_leader.items():
                failed |= await self._reset_at(node, wanted, resets)
        finally:
            # Those that got a position do not wait any more and do not notice.
            self._hold(resets, self._settings["retry_backoff_ms"])
            if failed:
                self._network.metadata.request_update()

    async def _reset_at(
        self,
        node: int,
        timestamps: Mapping[TopicPartition, int],
        resets: Mapping[TopicPartition, OffsetReset],
    ) -> set[TopicPartition]:
        """Those that are to be tried again."""
        try:
            found, retry = await self._lookup.ask(node, timestamps)
            # No record is as young as a duration asks for: what comes next will be.
            empty = [each for each, at in found.items() if at.offset < 0]
            if empty:
                found_ends, more = await self._lookup.ask(
                    node, dict.fromkeys(empty, LATEST_TIMESTAMP)
                )
                found.update(found_ends)
                retry |= more
        except KafkaError as error:
            if not error.code.retriable:
                raise
            return set(timestamps)
        cluster = self._network.metadata.cluster
        for each, at in found.items():
            if at.offset < 0:
                continue
            known = cluster.partition(each)
            epoch = -1 if known is None else known.leader_epoch
            # Without an epoch of its own: what the leader has just said needs no validation.
            position = FetchPosition(at.offset, -1, LeaderAndEpoch(node, epoch))
            if self._subscriptions.maybe_seek_unvalidated(each, position, resets[each]):
                logger.info("%s: offset reset to %s, %d", each, resets[each], at.offset)
        return retry

    def _validations(self, now_ms: int) -> dict[int, dict[TopicPartition, FetchPosition]]:
        found: dict[int, dict[TopicPartition, FetchPosition]] = {}
        for each, position in self._subscriptions.partitions_needing_validation(now_ms).items():
            found.setdefault(position.leader.leader, {})[each] = position
        return found

    async def _validate(self, node: int, positions: Mapping[TopicPartition, FetchPosition]) -> None:
        truncations: list[LogTruncation] = []
        retry = set(positions)
        try:
            ends = await self._lookup.ends_of_epochs(node, positions)
            for each, end in ends.items():
                retry.discard(each)
                truncation = self._subscriptions.complete_validation(
                    each, positions[each], end.epoch, end.end_offset
                )
                if truncation is not None:
                    truncations.append(truncation)
        except UnsupportedVersionError:
            # Too old a broker to say: positions are taken as they are.
            retry.clear()
            for each, position in positions.items():
                self._subscriptions.maybe_validate_position(
                    each, position.leader, can_validate=False
                )
        except KafkaError as error:
            if not error.code.retriable:
                raise
        finally:
            self._hold(positions, self._settings["retry_backoff_ms"])
        if retry:
            self._network.metadata.request_update()
        if truncations:
            self._report(LogTruncationError(truncations))


def _later(
    work: Callable[[int, Mapping[TopicPartition, FetchPosition]], Coroutine[Any, Any, None]],
    node: int,
    positions: Mapping[TopicPartition, FetchPosition],
) -> Work:
    return lambda: work(node, positions)
