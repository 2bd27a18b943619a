"""One cluster of Apache Kafka 3.9 and Penstock, administered through brokers of either kind.

The scenarios run one after the other in the same cluster, first with a controller of Kafka's, then
with one of Penstock. In the end the logs of all replicas are the same.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from penstock.client import Admin
from tests.compat.mixed import (
    coordinators,
    features,
    isr,
    moves,
    security,
    segments,
    tokens,
    topics,
)
from tests.compat.mixed.view import KAFKA, MixedView
from tests.support.history.cluster import BROKER_IDS, HistoryCluster
from tests.support.kafka.broker import KafkaParts
from tests.support.kafka.tools import KafkaTools, Shell

SETTINGS = {
    "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
    "super.users": "User:ANONYMOUS",
    "listener.name.logins.sasl.enabled.mechanisms": "SCRAM-SHA-256,SCRAM-SHA-512",
    "listener.name.logins.scram-sha-256.sasl.jaas.config": (
        "org.apache.kafka.common.security.scram.ScramLoginModule required;"
    ),
    "listener.name.logins.scram-sha-512.sasl.jaas.config": (
        "org.apache.kafka.common.security.scram.ScramLoginModule required;"
    ),
    "auto.create.topics.enable": "false",
    "delegation.token.secret.key": "the brokers' own",
    "delegation.token.expiry.check.interval.ms": "500",
}
CONTROLLERS = {"Kafka": {KAFKA}, "Penstock": set(BROKER_IDS) - {KAFKA}}


@contextmanager
def connected_zookeeper(address: str) -> Iterator[KazooClient]:
    client = KazooClient(address)
    client.start()
    try:
        yield client
    finally:
        client.stop()
        client.close()


@pytest.mark.long
@pytest.mark.timeout(600)
def test_brokers_of_both_kinds_agree(tmp_path: Path, subtests: pytest.Subtests) -> None:
    with (
        HistoryCluster(tmp_path, SETTINGS, kafka={KAFKA}, has_logins=True) as cluster,
        Admin(bootstrap_servers=cluster.network.bootstrap) as admin,
        connected_zookeeper(cluster.zookeeper.address) as zookeeper,
        KafkaTools(KafkaParts.find()) as tools,
        KafkaTools(KafkaParts.find("zookeeper.kafka.version")) as old_tools,
    ):
        shells = [Shell(running, cluster.network.bootstrap) for running in (old_tools, tools)]
        view = MixedView(cluster, admin, zookeeper, shells[-1])
        coordinators.create_internal_topics(view)
        for kind, broker_ids in CONTROLLERS.items():
            controller = view.move_controller_to(broker_ids)
            user = f"user-{kind}"
            with subtests.test("users", controller=kind):
                security.change_users(view, controller, user)
            with subtests.test("delegation tokens", through=kind):
                tokens.change_tokens(view, controller, user)
            with subtests.test("ACLs", through=kind):
                security.change_acls(view, controller, user, f"acls-{kind}")
            with subtests.test("quotas", through=kind):
                security.change_quotas(view, controller, user)
            with subtests.test("settings of brokers", through=kind):
                security.change_broker_settings(view, controller)
            with subtests.test("topics", controller=kind):
                view.move_controller_to(broker_ids)
                topics.change_topics(view, f"changed-{kind}")
            with subtests.test("deletion", controller=kind):
                controller = view.move_controller_to(broker_ids)
                topics.delete_topic_while_a_broker_is_down(view, f"deleted-{kind}", controller)
            with subtests.test("reassignment", controller=kind):
                view.move_controller_to(broker_ids)
                moves.move_there_and_back(view, f"moved-{kind}", shells, tmp_path)
            with subtests.test("ISR", controller=kind):
                controller = view.move_controller_to(broker_ids)
                for leader, follower in isr.roles_of(controller):
                    isr.shrink_and_grow(view, controller, leader, follower)
            with subtests.test("paused controller", controller=kind):
                controller = view.move_controller_to(broker_ids)
                isr.pause_the_controller(view, controller, f"paused-{kind}")
            with subtests.test("group coordinator", controller=kind):
                view.move_controller_to(broker_ids)
                coordinators.move_group_coordinator(view, f"group-{kind}")
            with subtests.test("transaction coordinator", controller=kind):
                view.move_controller_to(broker_ids)
                coordinators.move_transaction_coordinator(view, f"transactions-{kind}")
            shells.reverse()
        view.move_controller_to(CONTROLLERS["Penstock"])
        with subtests.test("features that Kafka does not know"):
            features.refuse_levels(view)
        with subtests.test("segment files"):
            view.cluster.wait_until_in_sync()
            segments.fill(view, "segments")
            view.cluster.wait_until_in_sync()
            for broker_id in BROKER_IDS:  # Kafka's first: the last one stays in all ISRs
                cluster.stop(broker_id)
            segments.check_files(view, "segments")
            segments.check_logs(view)
        with subtests.test("features"):
            for broker_id in CONTROLLERS["Penstock"]:
                cluster.start(broker_id)
            for broker_id in CONTROLLERS["Penstock"]:
                assert cluster.processes[broker_id].wait_until_ready(), cluster.log_end(broker_id)
            features.raise_levels(view, "raised")
        with subtests.test("features are lowered"):
            features.lower_levels(view, "raised")
