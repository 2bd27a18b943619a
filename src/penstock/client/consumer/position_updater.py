"""Positions of assigned partitions: from commits, from resets, and validated with new leaders."""

import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from penstock.client.consumer.offset_fetcher import OffsetFetcher, group_by_leader
from penstock.client.consumer.positions import (
    LATEST_TIMESTAMP,
    FetchPosition,
    LeaderAndEpoch,
    LogTruncation,
    LogTruncationError,
    OffsetReset,
)
from penstock.client.consumer.subscription_state import SubscriptionState
from penstock.client.settings import ConsumerOptions
from penstock.core.errors import KafkaError, UnsupportedVersionError
from penstock.core.ids import TopicPartition
from penstock.net.client.network_client import NetworkClient

if TYPE_CHECKING:
    from penstock.client.consumer.group.coordinator import ConsumerCoordinator

logger = logging.getLogger(__name__)

Work = Callable[[], Coroutine[Any, Any, None]]


class PositionUpdater:
    """Finds a valid position for every assigned partition, in tasks on the client's loop."""

    def __init__(
        self,
        network: NetworkClient,
        subscriptions: SubscriptionState,
        offset_fetcher: OffsetFetcher,
        group: "ConsumerCoordinator | None",
        settings: ConsumerOptions,
        *,
        start: Callable[[str, Work], bool],
        report: Callable[[KafkaError], None],
    ) -> None:
        """`start` runs work under a name, unless work of that name is running already."""
        self._network = network
        self._subscriptions = subscriptions
        self._offset_fetcher = offset_fetcher
        self._group = group
        self._settings = settings
        self._start = start
        self._report = report
        self._not_before_ms = 0

    def update_positions(self, now_ms: int, *, has_errors: bool) -> int | None:
        """Starts the requests that are due; none while poll has errors to raise.

        Returns the time in ms until the next call.
        """
        subscriptions = self._subscriptions
        if has_errors or subscriptions.has_all_fetch_positions():
            return None
        initializing = subscriptions.initializing_partitions()
        if initializing and now_ms >= self._not_before_ms:
            self._start("initial positions", lambda: self._initialize(initializing))
        resets = self._resets(now_ms)
        if resets and self._start("resets", lambda: self._reset(resets)):
            self._delay_retry(resets, self._settings["request_timeout_ms"])
        for node, positions in self._validations(now_ms).items():
            if self._start(f"validation at {node}", partial(self._validate, node, positions)):
                self._delay_retry(positions, self._settings["request_timeout_ms"])
        return self._settings["retry_backoff_ms"]

    def _delay_retry(self, partitions: Mapping[TopicPartition, object], delay_ms: int) -> None:
        at_ms = self._network.clock.monotonic_ms() + delay_ms
        self._subscriptions.set_next_retry(partitions, at_ms)

    async def _initialize(self, partitions: Sequence[TopicPartition]) -> None:
        backoff_ms = self._settings["retry_backoff_ms"]
        self._not_before_ms = self._network.clock.monotonic_ms() + backoff_ms
        without_commit = list(partitions)
        if self._group is not None:
            deadline_ms = (
                self._network.clock.monotonic_ms() + self._settings["default_api_timeout_ms"]
            )
            try:
                committed = await self._group.offsets.committed(list(partitions), deadline_ms)
            except KafkaError as error:
                if not error.code.retriable:
                    raise
                logger.debug("committed offsets could not be fetched: %s", error.message)
                return
            cluster = self._network.metadata.cluster
            without_commit = []
            for partition in partitions:
                commit = committed.get(partition)
                if commit is None:
                    without_commit.append(partition)
                    continue
                info = cluster.partition(partition)
                leader = (
                    LeaderAndEpoch()
                    if info is None
                    else LeaderAndEpoch(info.leader, info.leader_epoch)
                )
                position = FetchPosition(commit.offset, commit.leader_epoch, leader)
                self._subscriptions.seek_initial(partition, position)
        self._subscriptions.reset_initializing(without_commit)
        self._not_before_ms = 0

    def _resets(self, now_ms: int) -> dict[TopicPartition, OffsetReset]:
        return {
            partition: reset
            for partition in self._subscriptions.partitions_needing_reset(now_ms)
            if (reset := self._subscriptions.reset_strategy(partition)) is not None
        }

    async def _reset(self, resets: Mapping[TopicPartition, OffsetReset]) -> None:
        wall_ms = self._network.clock.now_ms()
        timestamps = {partition: reset.timestamp(wall_ms) for partition, reset in resets.items()}
        by_leader, retry = group_by_leader(self._network.metadata.cluster, timestamps)
        try:
            for node, requested in by_leader.items():
                retry |= await self._reset_at(node, requested, resets)
        finally:
            # Partitions that got a position are not affected.
            self._delay_retry(resets, self._settings["retry_backoff_ms"])
            if retry:
                self._network.metadata.request_update()

    async def _reset_at(
        self,
        node: int,
        timestamps: Mapping[TopicPartition, int],
        resets: Mapping[TopicPartition, OffsetReset],
    ) -> set[TopicPartition]:
        """Returns the partitions to request again."""
        try:
            offsets, retry = await self._offset_fetcher.fetch_from(node, timestamps)
            # No record is as recent as the duration: the reset is to the end.
            empty = [partition for partition, at in offsets.items() if at.offset < 0]
            if empty:
                end_offsets, retry_ends = await self._offset_fetcher.fetch_from(
                    node, dict.fromkeys(empty, LATEST_TIMESTAMP)
                )
                offsets.update(end_offsets)
                retry |= retry_ends
        except KafkaError as error:
            if not error.code.retriable:
                raise
            return set(timestamps)
        cluster = self._network.metadata.cluster
        for partition, at in offsets.items():
            if at.offset < 0:
                continue
            info = cluster.partition(partition)
            epoch = -1 if info is None else info.leader_epoch
            # Without an offset epoch: a position from the current leader needs no validation.
            position = FetchPosition(at.offset, -1, LeaderAndEpoch(node, epoch))
            reset = resets[partition]
            if self._subscriptions.maybe_seek_unvalidated(partition, position, reset):
                logger.info("%s: offset reset to %s, %d", partition, reset, at.offset)
        return retry

    def _validations(self, now_ms: int) -> dict[int, dict[TopicPartition, FetchPosition]]:
        by_leader: dict[int, dict[TopicPartition, FetchPosition]] = {}
        pending = self._subscriptions.partitions_needing_validation(now_ms)
        for partition, position in pending.items():
            by_leader.setdefault(position.leader.leader, {})[partition] = position
        return by_leader

    async def _validate(self, node: int, positions: Mapping[TopicPartition, FetchPosition]) -> None:
        truncations: list[LogTruncation] = []
        retry = set(positions)
        try:
            ends = await self._offset_fetcher.fetch_epoch_ends(node, positions)
            for partition, end in ends.items():
                retry.discard(partition)
                truncation = self._subscriptions.complete_validation(
                    partition, positions[partition], end.epoch, end.end_offset
                )
                if truncation is not None:
                    truncations.append(truncation)
        except UnsupportedVersionError:
            # The broker is too old for it: positions are assumed to be valid.
            retry.clear()
            for partition, position in positions.items():
                self._subscriptions.maybe_validate_position(
                    partition, position.leader, can_validate=False
                )
        except KafkaError as error:
            if not error.code.retriable:
                raise
        finally:
            self._delay_retry(positions, self._settings["retry_backoff_ms"])
        if retry:
            self._network.metadata.request_update()
        if truncations:
            self._report(LogTruncationError(truncations))
