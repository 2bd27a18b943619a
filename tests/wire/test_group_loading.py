"""The time in which a coordinator reads its log: who asks, and what happens meanwhile (C3)."""

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
from tests.support.protocol.requests import make_topic, received

READ_LOG = "penstock.broker.coordinator.host.read_log"
LOADING = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Nothing is loaded before it is set."""
    release = threading.Event()

    async def waiting(*arguments: Any) -> AsyncIterator[Any]:
        while not release.is_set():
            await asyncio.sleep(0.001)
        async for items in read_log(*arguments):
            yield items

    monkeypatch.setattr(READ_LOG, waiting)
    return release


def test_who_asks_while_groups_are_loaded_asks_again(tmp_path: Path, held: threading.Event) -> None:
    """Members of classic groups are told that all is well: they cannot have missed anything."""
    with watching():
        held.set()
        with running_broker(tmp_path, GROUP_SETTINGS) as broker, broker.connect() as client:
            make_topic(client, "t")
            find_group(client, "new")
            find_group(client, "old")
            new = ConsumerMember(client, "new", "m", names=["t"]).joined()
            old = ClassicMember(client, "old", ["t"]).joined()
        held.clear()
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
                shown = client.request(DescribeGroupsRequest(["old"]), 5).groups[0]
                assert shown.error_code == LOADING
            finally:
                held.set()
            find_group(client, "new")
            find_group(client, "old")
            assert new.beat().error_code == 0
            assert old.beat() is ErrorCode.NONE


def test_a_topic_that_is_deleted_meanwhile(tmp_path: Path, held: threading.Event) -> None:
    """Its offsets go too: a new topic of the same name must not start where the old one was."""
    with watching():
        held.set()
        with running_broker(tmp_path, GROUP_SETTINGS) as broker, broker.connect() as client:
            make_topic(client, "gone")
            make_topic(client, "kept")
            find_group(client, "g")
            assert commit(client, "g", {("gone", 0): 5, ("kept", 0): 6}) == [0, 0]
        held.clear()
        with running_broker(tmp_path, GROUP_SETTINGS) as broker, broker.connect() as client:
            try:
                delete_topic(client, "gone")
                make_topic(client, "gone")
            finally:
                held.set()
            find_group(client, "g")
            assert committed(client, "g") == {("kept", 0): 6}


def test_a_log_that_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients look for another coordinator then; they are not told to wait for ever."""
    with running_broker(tmp_path, GROUP_SETTINGS) as broker, broker.connect() as client:
        find_group(client, "g")

    def failing(*_: Any) -> AsyncIterator[Any]:
        raise OSError("the disk is gone")

    monkeypatch.setattr(READ_LOG, failing)
    with running_broker(tmp_path, GROUP_SETTINGS) as broker, broker.connect() as client:
        wait_until(lambda: fetched_group(client, "g").error_code != LOADING)
        assert fetched_group(client, "g").error_code == ErrorCode.NOT_COORDINATOR
        assert listed(client) == {}


def test_a_timer_that_fails_does_not_stop_the_others(tmp_path: Path) -> None:
    settings = {
        **GROUP_SETTINGS,
        "group.consumer.min.session.timeout.ms": "50",
        "group.consumer.session.timeout.ms": "100",
        "group.consumer.min.heartbeat.interval.ms": "10",
        "group.consumer.heartbeat.interval.ms": "50",
    }
    met = threading.Event()

    def fail_once(inside: Broker) -> None:
        groups = inside.groups
        handle = groups._handle

        def failing(partition: int, shard: GroupShard, event: Any) -> None:
            if not isinstance(event, TimerFired):
                handle(partition, shard, event)
                return
            groups._handle = handle  # type: ignore[method-assign]
            met.set()
            raise RuntimeError("an unexpected fault")

        groups._handle = failing  # type: ignore[method-assign]

    with running_broker(tmp_path, settings) as broker, broker.connect() as client:
        make_topic(client, "t")
        find_group(client, "g")
        broker.call(fail_once)
        for name in ("a", "b"):
            ConsumerMember(client, name, "m", names=["t"]).joined()
        assert met.wait(TIMEOUT_S)
        wait_until(lambda: bool(listed(client, ["Empty"])))


def test_several_look_for_the_first_coordinator_at_once(tmp_path: Path) -> None:
    """The topic is made once; nobody hears of the others."""
    with watching(), running_broker(tmp_path, GROUP_SETTINGS) as broker:
        clients: list[WireClient] = [broker.connect() for _ in range(8)]
        request = FindCoordinatorRequest(coordinator_keys=[f"g{index}" for index in range(5)])
        for client in clients:
            client.send(request, 4)
        for client in clients:
            coordinators = received(client, request, 4).coordinators
            assert [item.key for item in coordinators] == request.coordinator_keys
            assert {(item.error_code, item.node_id) for item in coordinators} == {(0, 0)}
            client.close()
