"""Requests to a group coordinator while it loads its log (C3)."""

import asyncio
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from penstock.broker.broker import Broker
from penstock.broker.coordinator.log import read_log
from penstock.coordinator.group.shard import GroupShard
from penstock.coordinator.machine import TimerFired
from penstock.core.errors import ErrorCode
from penstock.protocol.messages.describe_groups import DescribeGroupsRequest
from penstock.protocol.messages.find_coordinator import FindCoordinatorRequest
from penstock.protocol.messages.list_groups import ListGroupsRequest
from tests.support.broker.faults import watching
from tests.support.broker.in_process import TIMEOUT_S, WireClient, running_broker
from tests.support.coordinator.group_client import (
    GROUP_SETTINGS,
    commit,
    committed,
    delete_topic,
    described,
    fetched_group,
    find_group,
    listed,
    wait_until,
)
from tests.support.coordinator.group_members import ClassicMember, ConsumerMember
from tests.support.protocol.requests import make_topic, receive_response

READ_LOG = "penstock.broker.coordinator.host.read_log"
LOADING = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


@pytest.fixture
def loading_allowed(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """An event; nothing is loaded before it is set."""
    release = threading.Event()

    async def delayed_read_log(*arguments: Any) -> AsyncIterator[Any]:
        while not release.is_set():
            await asyncio.sleep(0.001)
        async for items in read_log(*arguments):
            yield items

    monkeypatch.setattr(READ_LOG, delayed_read_log)
    return release


def test_requests_while_groups_are_loading_must_be_retried(
    tmp_path: Path, loading_allowed: threading.Event
) -> None:
    """Heartbeats of classic groups succeed: their members cannot have missed a rebalance."""
    with watching():
        loading_allowed.set()
        with running_broker(tmp_path, GROUP_SETTINGS) as broker, broker.connect() as client:
            make_topic(client, "t")
            find_group(client, "new")
            find_group(client, "old")
            new = ConsumerMember(client, "new", "m", names=["t"]).joined()
            old = ClassicMember(client, "old", ["t"]).joined()
        loading_allowed.clear()
        with running_broker(tmp_path, GROUP_SETTINGS) as broker, broker.connect() as client:
            try:
                new.client = old.client = client
                assert client.request(FindCoordinatorRequest(key="new"), 2).error_code == 0
                assert new.beat().error_code == LOADING
                assert old.beat() is ErrorCode.NONE
                assert old.join().error_code == LOADING
                assert old.sync().error_code == LOADING
                assert old.leave() is LOADING
                assert commit(client, "new", {("t", 0): 1}) == [LOADING]
                assert fetched_group(client, "new").error_code == LOADING
                assert client.request(ListGroupsRequest(), 5).error_code == LOADING
                assert described(client, "new").error_code == LOADING
                group = client.request(DescribeGroupsRequest(["old"]), 5).groups[0]
                assert group.error_code == LOADING
            finally:
                loading_allowed.set()
            find_group(client, "new")
            find_group(client, "old")
            assert new.beat().error_code == 0
            assert old.beat() is ErrorCode.NONE


def test_offsets_of_a_topic_deleted_during_loading_are_removed(
    tmp_path: Path, loading_allowed: threading.Event
) -> None:
    """Its offsets are removed; a new topic with the same name must not start at them."""
    with watching():
        loading_allowed.set()
        with running_broker(tmp_path, GROUP_SETTINGS) as broker, broker.connect() as client:
            make_topic(client, "deleted")
            make_topic(client, "retained")
            find_group(client, "g")
            assert commit(client, "g", {("deleted", 0): 5, ("retained", 0): 6}) == [0, 0]
        loading_allowed.clear()
        with running_broker(tmp_path, GROUP_SETTINGS) as broker, broker.connect() as client:
            try:
                delete_topic(client, "deleted")
                make_topic(client, "deleted")
            finally:
                loading_allowed.set()
            find_group(client, "g")
            assert committed(client, "g") == {("retained", 0): 6}


def test_a_coordinator_that_cannot_read_its_log_is_not_available(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Clients look for another coordinator instead of retrying forever."""
    with running_broker(tmp_path, GROUP_SETTINGS) as broker, broker.connect() as client:
        find_group(client, "g")

    def failing(*_: Any) -> AsyncIterator[Any]:
        raise OSError("the disk is gone")

    monkeypatch.setattr(READ_LOG, failing)
    with running_broker(tmp_path, GROUP_SETTINGS) as broker, broker.connect() as client:
        wait_until(lambda: fetched_group(client, "g").error_code != LOADING)
        assert fetched_group(client, "g").error_code == ErrorCode.NOT_COORDINATOR
        assert listed(client) == {}


def test_a_failing_timer_does_not_stop_other_timers(tmp_path: Path) -> None:
    settings = {
        **GROUP_SETTINGS,
        "group.consumer.min.session.timeout.ms": "50",
        "group.consumer.session.timeout.ms": "100",
        "group.consumer.min.heartbeat.interval.ms": "10",
        "group.consumer.heartbeat.interval.ms": "50",
    }
    timer_failed = threading.Event()

    def fail_once(inside: Broker) -> None:
        groups = inside.groups
        handle = groups._handle

        def failing(partition: int, shard: GroupShard, event: Any) -> None:
            if not isinstance(event, TimerFired):
                handle(partition, shard, event)
                return
            groups._handle = handle  # type: ignore[method-assign]
            timer_failed.set()
            raise RuntimeError("an unexpected fault")

        groups._handle = failing  # type: ignore[method-assign]

    with running_broker(tmp_path, settings) as broker, broker.connect() as client:
        make_topic(client, "t")
        find_group(client, "g")
        broker.call(fail_once)
        for name in ("a", "b"):
            ConsumerMember(client, name, "m", names=["t"]).joined()
        assert timer_failed.wait(TIMEOUT_S)
        wait_until(lambda: bool(listed(client, ["Empty"])))


def test_concurrent_clients_find_the_first_coordinator(tmp_path: Path) -> None:
    """The topic is created once, and all clients get the coordinator."""
    with watching(), running_broker(tmp_path, GROUP_SETTINGS) as broker:
        clients: list[WireClient] = [broker.connect() for _ in range(8)]
        request = FindCoordinatorRequest(coordinator_keys=[f"g{index}" for index in range(5)])
        for client in clients:
            client.send(request, 4)
        for client in clients:
            coordinators = receive_response(client, request, 4).coordinators
            assert [coordinator.key for coordinator in coordinators] == request.coordinator_keys
            assert {
                (coordinator.error_code, coordinator.node_id) for coordinator in coordinators
            } == {(0, 0)}
            client.close()
