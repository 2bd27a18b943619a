"""The ACLs of znodes are those that Kafka's own tool sets (X3)."""

import subprocess
from pathlib import Path
from typing import Any

import pytest

from penstock.broker.config.broker_config import BrokerConfig
from penstock.broker.config.zookeeper_config import zookeeper_config
from penstock.cluster.zookeeper.acl_changes import change_acls
from penstock.cluster.zookeeper.config import ZooKeeperConfig
from penstock.cluster.zookeeper.store import ZooKeeperStore
from penstock.controller.metadata import Put
from tests.support.cluster.metadata_changes import config, partition, topic
from tests.support.cluster.zookeeper_server import ZooKeeperServer
from tests.support.kafka.broker import KafkaParts

pytestmark = pytest.mark.long

MODULE = "org.apache.zookeeper.server.auth.DigestLoginModule"
JAAS = f"""
Server {{ {MODULE} required user_kafka="secret"; }};
Client {{ {MODULE} required username="kafka" password="secret"; }};
"""


def acls_of(client: Any, chroot: str) -> dict[str, set[tuple[int, str, str]]]:
    """Returns the ACLs of each node of a cluster, by its path."""
    acls, paths = {}, [chroot]
    while paths:
        path = paths.pop()
        entries, _ = client.get_acls(path)
        acls[path.removeprefix(chroot)] = {(acl.perms, *acl.id) for acl in entries}
        paths += [f"{path}/{name}" for name in client.get_children(path)]
    return acls


def test_kafka_sets_the_same_acls(tmp_path: Path) -> None:
    jaas = tmp_path / "jaas"
    jaas.write_text(JAAS)
    option = f"-Djava.security.auth.login.config={jaas}"
    provider = "org.apache.zookeeper.server.auth.SASLAuthenticationProvider"
    with ZooKeeperServer(
        tmp_path / "zookeeper", {"authProvider.sasl": provider}, java_options=[option]
    ) as server:

        def settings(chroot: str, *, is_secure: bool) -> ZooKeeperConfig:
            properties = {
                "zookeeper.connect": f"{server.address}{chroot}",
                "zookeeper.set.acl": str(is_secure).lower(),
                "java.security.auth.login.config": str(jaas),
            }
            parsed = zookeeper_config(BrokerConfig.from_properties(properties))
            assert parsed is not None
            return parsed

        for chroot, is_secure in (("/ours", False), ("/kafka", False), ("/new", True)):
            store = ZooKeeperStore(settings(chroot, is_secure=is_secure))
            store.commit([Put(topic("t")), Put(partition("t")), Put(config(("users", "a"), x="1"))])
            store.close()

        def run_kafka(acl: str, chroot: str) -> None:
            command = KafkaParts.find("zookeeper.kafka.version").command(
                "kafka.admin.ZkSecurityMigrator",
                f"--zookeeper.acl={acl}",
                f"--zookeeper.connect={server.address}{chroot}",
                scratch=tmp_path,
            )
            command.insert(command.index("-cp"), option)
            subprocess.run(command, check=True, capture_output=True, timeout=120)

        change_acls(settings("/ours", is_secure=True))
        run_kafka("secure", "/kafka")
        reader = ZooKeeperStore(settings("/ours", is_secure=True))
        client: Any = reader.session.client._kazoo
        ours, kafkas, new = (acls_of(client, root) for root in ("/ours", "/kafka", "/new"))
        assert ours["/config/users/a"] == {(31, "sasl", "kafka")}
        assert ours["/brokers/topics/t"] == {(31, "sasl", "kafka"), (1, "world", "anyone")}
        # Kafka's tool also creates roots that do not exist yet; the brokers create them later.
        assert {path: kafkas[path] for path in ours} == ours
        assert {path: new[path] for path in ours} == ours
        # Kafka's tool opens what ours has closed.
        run_kafka("unsecure", "/ours")
        everybody = {(31, "world", "anyone")}
        assert set(map(frozenset, acls_of(client, "/ours").values())) == {frozenset(everybody)}
        reader.close()
