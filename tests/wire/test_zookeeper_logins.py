"""Brokers that log in to ZooKeeper, and whose znodes are closed to others (X2, X3)."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError

from penstock.client import Producer
from tests.support.broker.process import PenstockBroker
from tests.support.client.cli import Cli
from tests.support.cluster.zookeeper_server import new_chroot, shared_server
from tests.wire.test_failed_starts import failed_start

LOGIN = "zookeeper.auth.digest=kafka:secret"
penstock = Cli()


@pytest.fixture
def chroot() -> str:
    return new_chroot().removeprefix("/tests")


@pytest.fixture
def stranger(chroot: str) -> Iterator[Any]:
    client: Any = KazooClient(shared_server().address)
    client.start()
    client.chroot = chroot
    yield client
    client.stop()
    client.close()


def options(*settings: str) -> list[str]:
    return [part for setting in settings for part in ("--set", setting)]


def test_the_znodes_of_a_cluster_are_closed_and_opened_while_it_runs(
    tmp_path: Path, chroot: str, stranger: Any
) -> None:
    connect = f"{shared_server().address}{chroot}"
    settings = {
        "node.id": "1",
        "zookeeper.connect": connect,
        "zookeeper.auth.digest": "kafka:secret",
    }
    to_cluster = f"zookeeper.connect={connect}"
    with (
        PenstockBroker(tmp_path, settings) as broker,
        Producer(bootstrap_servers=broker.bootstrap) as producer,
    ):
        cli = Cli(broker.bootstrap)
        cli("user", "create", "ann", "--password-stdin", stdin="x")
        stranger.get("/config/users/ann")
        refused = penstock.refused("cluster", "znode-acls", "--to", "secure", *options(to_cluster))
        assert "ACLs need a login to ZooKeeper" in refused
        closed = penstock(
            "cluster", "znode-acls", "--to", "secure", "-y", *options(to_cluster, LOGIN)
        )
        assert "closed to strangers" in closed.stdout
        with pytest.raises(NoAuthError):
            stranger.get("/config/users/ann")
        with pytest.raises(NoAuthError):
            stranger.create("/brokers/ids/7")
        # The broker keeps working on closed znodes.
        cli("topic", "create", "t")
        producer.send("t", b"a").result()
        cli("user", "create", "ann", "--password-stdin", stdin="y")
        line = failed_start(tmp_path, f"log.dirs={tmp_path / 'other'}", to_cluster)
        assert "have ACLs: log in as the other brokers do" in line
        penstock("cluster", "znode-acls", "--to", "unsecure", "-y", *options(to_cluster, LOGIN))
        stranger.get("/config/users/ann")
