"""A cluster whose brokers log in to each other over TLS, with ACLs (X1, X2, X3)."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.client import Admin, Producer
from penstock.client.admin import ScramMechanism, ScramUpsertion
from penstock.core.errors import ErrorCode, KafkaError
from penstock.protocol.fields import Message
from penstock.protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest
from penstock.protocol.messages.alter_partition import AlterPartitionRequest
from penstock.protocol.messages.controlled_shutdown import ControlledShutdownRequest
from penstock.protocol.messages.leader_and_isr import LeaderAndIsrRequest
from penstock.protocol.messages.stop_replica import StopReplicaRequest
from penstock.protocol.messages.update_metadata import (
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)
from tests.support.broker.certificates import make_identity, simple_name
from tests.support.broker.logins import AUTHORIZER
from tests.support.cluster.brokers import RunningCluster, running_cluster, running_member

_JAAS = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required "
    'username="kafka" password="kafka-secret" user_kafka="kafka-secret" user_ann="ann-secret";'
)


def _settings() -> dict[str, str]:
    authority = make_identity(simple_name("authority"))
    identity = make_identity(simple_name("broker"), authority)
    return {
        "listeners": "PLAINTEXT://127.0.0.1:0,INTERNAL://localhost:0",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,INTERNAL:SASL_SSL",
        "inter.broker.listener.name": "INTERNAL",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "listener.name.internal.plain.sasl.jaas.config": _JAAS,
        "ssl.keystore.type": "PEM",
        "ssl.keystore.key": identity.key_pem(),
        "ssl.keystore.certificate.chain": identity.certificate_pem,
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": authority.certificate_pem,
        "listener.name.internal.ssl.client.auth": "required",
        "authorizer.class.name": AUTHORIZER,
        "super.users": "User:kafka",
    }


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    directory = tmp_path_factory.mktemp("cluster")
    with running_cluster(directory, brokers=2, settings=_settings()) as running:
        yield running


def test_replication_and_transactions_need_no_acls_of_clients_between_brokers(
    tmp_path: Path,
) -> None:
    """Anonymous clients may do everything here; the brokers are super users."""
    settings = _settings() | {"super.users": "User:kafka;User:ANONYMOUS"}
    replicas = {
        "default.replication.factor": "2",
        "offsets.topic.replication.factor": "2",
        "transaction.state.log.replication.factor": "2",
        "transaction.state.log.min.isr": "2",
    }
    with running_cluster(tmp_path, brokers=2, settings=settings | replicas) as cluster:
        bootstrap = cluster.bootstrap_servers
        with Producer(bootstrap_servers=bootstrap, transactional_id="secured") as producer:
            producer.init_transactions()
            for partition in range(2):
                producer.begin_transaction()
                producer.send(f"topic-{partition}", b"x", partition=0)
                producer.commit_transaction()
        cluster.wait_on_all(
            lambda broker: {len(state.isr) for state in broker.image.partitions.values()} == {2},
            "all replicas are in sync",
        )


def test_scram_credentials_of_brokers_are_in_the_store(tmp_path: Path) -> None:
    """The first broker is alone: it creates the user with which the others log in."""
    module = "org.apache.kafka.common.security.scram.ScramLoginModule"
    settings = _settings() | {
        "super.users": "User:broker;User:ANONYMOUS",
        "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-256",
        "listener.name.internal.scram-sha-256.sasl.jaas.config": (
            f'{module} required username="broker" password="s3cret";'
        ),
        "default.replication.factor": "2",
    }
    with running_cluster(tmp_path, brokers=1, settings=settings) as cluster:
        with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
            admin.alter_user_scram_credentials(
                [ScramUpsertion("broker", ScramMechanism.SCRAM_SHA_256, "s3cret")]
            )
        cluster.start(1)
        cluster.create_topic("replicated", (1, 0))
        with Producer(bootstrap_servers=cluster.bootstrap_servers, acks="all") as producer:
            producer.send("replicated", b"x").result(10)


@pytest.mark.parametrize(
    "request_",
    [
        LeaderAndIsrRequest(controller_epoch=1000),
        StopReplicaRequest(controller_epoch=1000),
        UpdateMetadataRequest(controller_epoch=1000),
        ControlledShutdownRequest(1, -1),
        AlterPartitionRequest(1, 1),
        AllocateProducerIdsRequest(1, 1),
    ],
    ids=lambda request: type(request).__name__,
)
def test_clients_cannot_act_as_brokers(cluster: RunningCluster, request_: Message) -> None:
    version = type(request_).INFO.versions.high
    for broker_id in cluster.brokers:
        with cluster.connect(broker_id, "PLAINTEXT") as client:
            response: Any = client.request(request_, version)
            assert response.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    cluster.wait_on_all(lambda broker: len(broker.image.brokers) == 2, "nothing has changed")


@pytest.mark.long
def test_a_giant_request_of_a_client_is_refused_and_that_of_a_broker_is_not(
    cluster: RunningCluster, tmp_path: Path
) -> None:
    states = [
        UpdateMetadataTopicState(
            f"topic-{number}",
            partition_states=[
                UpdateMetadataPartitionState(partition_index=0, isr=[1, 2, 3], replicas=[1, 2, 3])
            ],
        )
        for number in range(30_000)
    ]
    giant = UpdateMetadataRequest(controller_epoch=-1, broker_epoch=-1, topic_states=states)
    with cluster.connect(0, "PLAINTEXT") as client:
        assert client.request(giant, 8).error_code == ErrorCode.INVALID_REQUEST
    with running_member(tmp_path) as alone, alone.connect() as client:
        # Without an authorizer, every client may do what brokers do.
        assert client.request(giant, 8).error_code == ErrorCode.STALE_CONTROLLER_EPOCH


def test_a_cluster_does_not_start_without_a_login_for_brokers(tmp_path: Path) -> None:
    settings = _settings()
    settings["sasl.mechanism.inter.broker.protocol"] = "GSSAPI"
    with (
        pytest.raises(KafkaError, match=r"sasl\.mechanism\.inter\.broker\.protocol: GSSAPI"),
        running_cluster(tmp_path, brokers=1, settings=settings),
    ):
        pass
