"""A controlled restart of each broker in turn, as clients see it (R8): no errors, no long waits."""

import logging
from pathlib import Path

from tests.support.cluster.brokers import running_cluster
from tests.support.cluster.measured_clients import PLAIN, TRANSACTIONAL, MeasuredClients

logger = logging.getLogger(__name__)

SPREAD = ((0, 1, 2), (1, 2, 0), (2, 0, 1))
"""Each broker leads one of three partitions."""
LONGEST_S = 30.0
"""Far more than a request should take, because the machine may be busy: `bench failover` measures
it."""
SETTINGS = {"min.insync.replicas": "2", "transaction.state.log.min.isr": "2"}


def test_a_restart_of_each_broker_costs_no_client_an_error(tmp_path: Path) -> None:
    with running_cluster(tmp_path, brokers=3, settings=SETTINGS) as cluster:
        for topic in (PLAIN, TRANSACTIONAL):
            cluster.create_topic(topic, *SPREAD)
        clients = MeasuredClients(cluster.bootstrap_servers)
        with clients.running():
            cluster.wait_until(lambda: clients.consumed & clients.committed, "all clients run")
            for broker_id in range(3):
                cluster.stop(broker_id)
                cluster.start(broker_id)
                cluster.wait_on_all(
                    lambda broker: all(
                        len(record.isr) == 3 for record in broker.image.partitions.values()
                    ),
                    "all replicas are in sync",
                )
        assert clients.consumed == clients.sent | clients.committed
        logger.info("%d records; longest calls: %s", len(clients.consumed), clients.longest_s)
        assert max(clients.longest_s.values()) < LONGEST_S, clients.longest_s
