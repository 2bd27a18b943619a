"""Failovers and restarts of three brokers on ZooKeeper, as clients see them (R6, R8).

Brokers are killed with SIGKILL, then restarted one after the other with SIGTERM, while a producer
with `acks=all`, a transactional one and a consumer in a group run. A figure is the longest call.
Run it on an idle machine: the clients, the brokers and ZooKeeper share its cores.
"""

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from bench.report import Row, at_most

SESSION_TIMEOUT_S: Final = 3.0
FAILOVER_S: Final = SESSION_TIMEOUT_S + 1
RESTART_S: Final = 1.0
REPLICAS: Final = ((1, 2, 3), (2, 3, 1), (3, 1, 2))
"""Each broker leads one of three partitions."""
SETTINGS: Final = {
    "zookeeper.session.timeout.ms": str(int(SESSION_TIMEOUT_S * 1000)),
    "transaction.state.log.min.isr": "2",
}
_SETTLE_S: Final = 1.0
"""How long the clients run before and after a fault."""


def run() -> list[Row]:
    from penstock.client.admin.admin import Admin
    from penstock.coordinator.partitioning import partition_for
    from tests.support.cluster.measured_clients import (
        COMMIT_OFFSETS,
        COMMIT_TRANSACTION,
        GROUP,
        PLAIN,
        PRODUCE,
        TRANSACTIONAL,
        TRANSACTIONAL_ID,
        MeasuredClients,
    )
    from tests.support.cluster.processes import GROUPS_LOG, ClusterView, ProcessCluster
    from tests.support.cluster.zookeeper_server import ZooKeeperServer

    kinds = (PRODUCE, COMMIT_TRANSACTION, COMMIT_OFFSETS)

    def rows_of(title: str, clients: MeasuredClients, limit: float) -> list[Row]:
        return [
            at_most(f"{title}: {kind}", clients.longest_s.get(kind, 0.0), "s", limit)
            for kind in kinds
        ]

    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        with (
            ZooKeeperServer(directory / "zookeeper") as zookeeper,
            ProcessCluster(directory, SETTINGS, zookeeper=zookeeper.address) as cluster,
            Admin(bootstrap_servers=cluster.bootstrap) as admin,
        ):
            view = ClusterView(cluster, admin)

            def leader_of(topic: str, key: str) -> int:
                leaders = view.leaders(topic)
                leader = leaders[partition_for(key, len(leaders))]
                assert leader is not None
                return leader

            roles: dict[str, Callable[[], int]] = {
                "leader": lambda: view.leaders(PLAIN)[0] or 0,
                "coordinator of the group": lambda: leader_of(GROUPS_LOG, GROUP),
                "coordinator of the transactions": lambda: leader_of(
                    "__transaction_state", TRANSACTIONAL_ID
                ),
                "controller": view.controller_id,
            }
            for topic in (PLAIN, TRANSACTIONAL):
                view.create_topic(topic, *REPLICAS)
            clients = MeasuredClients(cluster.bootstrap)
            rows = []
            with clients.running():
                view.wait_until(lambda: bool(clients.consumed & clients.committed), "clients run")
                for role, broker_of in roles.items():
                    view.wait_until(view.is_well, "every replica in sync, led by its preferred one")
                    time.sleep(_SETTLE_S)
                    clients.longest_s.clear()
                    cluster.nodes[broker_of()].kill()
                    time.sleep(FAILOVER_S + _SETTLE_S)
                    rows += rows_of(f"kill -9 of the {role}", clients, FAILOVER_S)
                    cluster.start()
                view.wait_until(view.is_well, "every replica in sync, led by its preferred one")
                time.sleep(_SETTLE_S)
                clients.longest_s.clear()
                for broker in cluster.nodes.values():
                    broker.stop()
                    cluster.start()
                    view.wait_until(
                        lambda: all(map(view.is_in_sync, (PLAIN, TRANSACTIONAL, GROUPS_LOG))),
                        "every replica in sync",
                    )
                rows += rows_of("controlled restart of each broker", clients, RESTART_S)
    missing = (clients.sent | clients.committed) - clients.consumed
    return [*rows, at_most("acknowledged records lost", len(missing), "records", 0)]
