"""Bugs of replication and of the controller, as patches: the simulation must find each of them.

with BUGS["the high watermark is the log end offset"].patch():
    ClusterSimulation(seed=0).run()
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager, ExitStack
from typing import Any, Final
from unittest.mock import patch

from msgspec.structs import replace

from penstock.broker.metadata.active_controller import ActiveController
from penstock.broker.metadata.controller_host import ControllerHost
from penstock.broker.metadata.controller_requests import ControllerRequests
from penstock.broker.metadata.registration import BrokerRegistration
from penstock.broker.replica.replica import Replica
from penstock.broker.replica.replica_fetcher import ReplicaFetcher
from penstock.broker.replica.replica_manager import ReplicaManager
from penstock.controller.metadata import Change
from penstock.controller.partition_state_machine import (
    ElectionRules,
    PartitionState,
    next_partition_state,
)
from penstock.controller.reactions import ControllerReactions
from penstock.core.errors import ErrorCode
from penstock.core.ids import TopicPartition
from penstock.records.append_policy import AppendOrigin
from penstock.replication.follower_effects import InitialFetch, Truncate
from penstock.replication.follower_fetch_state import FetchPhase
from penstock.replication.follower_state import FollowerState
from penstock.replication.partition import IsrProposal, Partition
from penstock.storage.producer.append_info import ProducerAppendInfo
from penstock.storage.producer.state_manager import ProducerStateManager
from tests.sim.cluster.bug_registry import BugRegistry
from tests.sim.cluster.cluster_clients import DATA

BUGS: Final = BugRegistry()


# --- the leader


@BUGS.plant("the high watermark is the log end offset", 0)
def _early_high_watermark() -> AbstractContextManager[object]:
    return patch.object(
        Partition, "high_watermark", lambda self, log_end_offset, now_ms, rules: log_end_offset
    )


@BUGS.plant("the high watermark covers what is being sent to a follower", 61)
def _sent_counts_as_replicated() -> AbstractContextManager[object]:
    record_fetch = FollowerState.record_fetch

    def record(
        self: FollowerState,
        fetch_offset: int,
        log_start_offset: int,
        leader_end_offset: int,
        *rest: int,
    ) -> None:
        record_fetch(self, leader_end_offset, log_start_offset, leader_end_offset, *rest)

    return patch.object(FollowerState, "record_fetch", record)


@BUGS.plant("acks=all does not wait", 3)
def _no_wait() -> AbstractContextManager[object]:
    commit_result = Replica.commit_result

    def result(self: Replica, offset: int) -> ErrorCode | None:
        is_data = self.partition.key.topic == DATA
        return ErrorCode.NONE if is_data else commit_result(self, offset)

    return patch.object(Replica, "commit_result", result)


@BUGS.plant("the leader does not detect a log that differs", 3)
def _undetected_divergence() -> AbstractContextManager[object]:
    return patch(
        "penstock.broker.replica.partition_reader._divergence", lambda log, partition: None
    )


@BUGS.plant("the ISR shrinks before the controller has committed it", 18)
def _early_shrink() -> AbstractContextManager[object]:
    def propose(self: Partition, proposal: IsrProposal) -> None:
        self.pending = proposal
        self.maximal_isr = frozenset(proposal.isr)

    return patch.object(Partition, "propose", propose)


# --- the follower


@BUGS.plant("a follower truncates to its high watermark", 1)
def _truncation_by_high_watermark() -> AbstractContextManager[object]:
    add = ReplicaFetcher.add

    def add_and_truncate(self: ReplicaFetcher, key: TopicPartition, initial: InitialFetch) -> None:
        is_new = self.machine.find(key) is None
        add(self, key, initial)
        state = self.machine.find(key)
        log = initial.log.replica.log  # type: ignore[attr-defined]
        if is_new and state is not None and log.high_watermark < log.log_end_offset:
            self.machine._set_phase(state, FetchPhase.BUSY)
            self._start(state, self._truncate(Truncate(state, log.high_watermark)))

    return patch.object(ReplicaFetcher, "add", add_and_truncate)


@BUGS.plant("a follower does not truncate", 2)
def _no_truncation() -> AbstractContextManager[object]:
    async def truncate(self: ReplicaFetcher, truncate: Truncate) -> None:
        self.machine.truncated(truncate)

    return patch.object(ReplicaFetcher, "_truncate", truncate)


@BUGS.plant("a follower does not keep the state of producers", 4)
def _no_producer_state() -> AbstractContextManager[object]:
    update = ProducerStateManager.update

    def update_as_leader(self: ProducerStateManager, info: ProducerAppendInfo) -> None:
        if info._origin is not AppendOrigin.REPLICATION:
            update(self, info)

    return patch.object(ProducerStateManager, "update", update_as_leader)


# --- the controller


@BUGS.plant("commits overwrite newer states", 41)
def _unconditional_commits() -> AbstractContextManager[object]:
    commit = ControllerHost._commit

    async def commit_always(
        self: ControllerHost, changes: Sequence[Change], *, based_on: int, fenced: bool
    ) -> None:
        await commit(self, changes, based_on=1 << 60, fenced=False)

    return patch.object(ControllerHost, "_commit", commit_always)


@BUGS.plant("leaders are elected outside the ISR", 26)
def _unclean_elections() -> AbstractContextManager[object]:
    rules_of = ControllerReactions.rules

    def rules(self: ControllerReactions, rules: ElectionRules) -> ElectionRules:
        return rules_of(self, rules)._replace(allows_unclean=lambda topic: True)

    return patch.object(ControllerReactions, "rules", rules)


def _elect(**ignored: Any) -> AbstractContextManager[object]:
    def next_state(*arguments: Any, **options: Any) -> PartitionState | None:
        return next_partition_state(*arguments, **{**options, **ignored})

    return patch("penstock.controller.election.next_partition_state", next_state)


@BUGS.plant("a restarted broker stays in the ISR", 14)
def _restarted_in_sync() -> AbstractContextManager[object]:
    return _elect(restarted=(), unclean=())


@BUGS.plant("an election does not raise the leader epoch", 1)
def _same_epoch() -> AbstractContextManager[object]:
    def next_state(before: PartitionState, *arguments: Any, **options: Any) -> Any:
        after = next_partition_state(before, *arguments, **options)
        if after is None:
            return None
        record = replace(after.record, leader_epoch=before.record.leader_epoch)
        return PartitionState(record, after.assignment)

    return patch("penstock.controller.election.next_partition_state", next_state)


@BUGS.plant("a broker registers while its old session exists", 3)
def _early_registration() -> AbstractContextManager[object]:
    stored = BrokerRegistration._stored
    calls: dict[int, int] = {}

    async def stored_later(self: BrokerRegistration, key: Any) -> Any:
        calls[id(self)] = calls.get(id(self), 0) + 1
        return await stored(self, key) if calls[id(self)] % 2 == 0 else None

    return patch.object(BrokerRegistration, "_stored", stored_later)


@BUGS.plant("a new controller informs brokers before its first decision is committed", 14)
def _early_updates() -> AbstractContextManager[object]:
    react = ControllerHost._react

    async def react_and_start(self: ControllerHost, controller: ActiveController) -> bool:
        has_reacted = await react(self, controller)
        if self.active is controller and not controller.is_started:
            await controller.start()
        return has_reacted

    return patch.object(ControllerHost, "_react", react_and_start)


# --- late and old requests


@BUGS.plant("requests of former controllers are obeyed", 53)
def _obeyed_zombie() -> AbstractContextManager[object]:
    update = Partition.update

    def update_always(self: Partition, **state: Any) -> bool:
        self.partition_epoch = self.leader_epoch = -1
        return update(self, **state)

    stack = ExitStack()
    stack.enter_context(patch.object(ControllerRequests, "_check", lambda *arguments: None))
    stack.enter_context(patch.object(ReplicaManager, "_is_newer", lambda self, update: True))
    stack.enter_context(patch.object(Partition, "update", update_always))
    return stack


@BUGS.plant("the leader epoch of a fetch is not checked", 7)
def _unchecked_fetches() -> AbstractContextManager[object]:
    return patch.object(Partition, "check_epoch", lambda self, epoch: ErrorCode.NONE)


@BUGS.plant("the controller accepts ISR changes of former leaders", 38)
def _unchecked_proposals() -> AbstractContextManager[object]:
    stack = ExitStack()
    for check in ("_check_epochs", "_check_proposal"):
        stack.enter_context(
            patch(f"penstock.controller.isr.{check}", lambda *arguments: ErrorCode.NONE)
        )
    return stack
