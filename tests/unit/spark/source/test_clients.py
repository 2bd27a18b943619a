"""Clients are reused by later tasks, up to a limit."""

import os
from collections.abc import Iterator

import pytest

from penstock.client.errors import ConfigError
from penstock.spark.source import clients
from penstock.spark.source.clients import MOST_CLIENTS, client_for, close_clients


@pytest.fixture(autouse=True)
def no_clients() -> Iterator[None]:
    close_clients()
    yield
    close_clients()
    assert not [key for key in clients._clients if key[0] == os.getpid()]


def properties(number: int) -> dict[str, str]:
    return {"bootstrap.servers": f"127.0.0.1:{9000 + number}"}


def test_the_next_task_gets_the_same_client() -> None:
    with client_for(properties(1)) as first:
        assert first.settings["bootstrap_servers"] == "127.0.0.1:9001"
    with client_for(properties(1)) as second:
        assert second is first
    with client_for({**properties(1), "isolation.level": "read_committed"}) as second:
        assert second is not first


def test_the_least_recently_used_clients_are_closed() -> None:
    created = []
    for number in range(MOST_CLIENTS + 2):
        with client_for(properties(number)) as client:
            created.append(client)
        with client_for(properties(0)) as first:
            assert first is created[0]
    assert len(clients._clients) == MOST_CLIENTS
    assert [client.thread.loop.is_closed() for client in created] == [False, True, True] + [
        False
    ] * 3


def test_clients_in_use_are_not_closed() -> None:
    with client_for(properties(0)) as first:
        for number in range(1, MOST_CLIENTS + 3):
            with client_for(properties(number)):
                pass
        assert not first.thread.loop.is_closed()
        close_clients()
        assert list(clients._clients.values()) == [first]
    with client_for(properties(0)) as second:
        assert second is first


def test_a_failed_task_leaves_the_client_usable() -> None:
    with pytest.raises(ZeroDivisionError), client_for(properties(0)) as first:
        raise ZeroDivisionError
    with client_for(properties(0)) as second:
        assert second is first
        assert second.users == 1


def test_a_forked_process_has_its_own_client(monkeypatch: pytest.MonkeyPatch) -> None:
    with client_for(properties(0)) as first:
        pid = os.getpid()
        monkeypatch.setattr("os.getpid", lambda: pid + 1)
        with client_for(properties(0)) as second:
            assert second is not first
        close_clients()
        monkeypatch.undo()
    assert not first.thread.loop.is_closed()


def test_bad_settings_leave_no_thread() -> None:
    with pytest.raises(ConfigError, match="bootstrap_servers"), client_for({"client.id": "x"}):
        pass
    assert not clients._clients


def test_java_only_settings_are_ignored() -> None:
    with client_for({**properties(0), "key.deserializer": "x", "fetch.max.bytes": "77"}) as client:
        assert client.settings["fetch_max_bytes"] == 77
