"""Metrics of the controller, the session with the metadata store, and the broker's state."""

from penstock.broker.broker import Broker
from penstock.broker.metrics.exposition import Exposition
from penstock.broker.metrics.health import BrokerState
from penstock.broker.pacer import Steps
from penstock.cluster.store import SessionState


def collect_controller(exposition: Exposition, broker: Broker, state: BrokerState) -> Steps[None]:
    """The counts of the cluster are those of the controller; other brokers report zeros."""
    host, image = broker.controller, broker.image
    gauge, counter = exposition.gauge, exposition.counter
    is_active = host.is_active
    offline = imbalanced = 0
    if is_active:
        for key, partition in list(image.partitions.items()):
            yield
            offline += partition.leader < 0
            topic = image.topics.get(key.topic)
            assignment = None if topic is None else topic.assignments.get(key.partition)
            if assignment is not None and assignment.replicas:
                imbalanced += partition.leader != assignment.replicas[0]
    prefix = "kafka_controller_kafkacontroller"
    for name, value, documentation in (
        ("activecontrollercount", 1, "1 on the broker that is the controller."),
        ("offlinepartitionscount", offline, "Partitions without a leader."),
        ("preferredreplicaimbalancecount", imbalanced, "Partitions not led by the first replica."),
        ("globaltopiccount", len(image.topics), "Topics of the cluster."),
        ("globalpartitioncount", len(image.partitions), "Partitions of the cluster."),
        ("activebrokercount", len(image.brokers), "Brokers that are up."),
        ("topicstodeletecount", len(image.topic_deletions), "Topics that are being deleted."),
    ):
        gauge(f"{prefix}_{name}", documentation).add(value if is_active else 0)
    gauge("penstock_controller_epoch", "The epoch of the controller as this broker knows it.").add(
        image.controller_epoch
    )
    counts = host.election_counts
    counter(
        "kafka_controller_controllerstats_leaderelections_total",
        "Changes of leaders while this broker was the controller.",
    ).add(counts.elections)
    counter(
        "kafka_controller_controllerstats_uncleanleaderelections_total",
        "Those that elected a replica which was not in sync.",
    ).add(counts.unclean)
    session = host.session_status
    gauge("penstock_metadata_store_connected", "1 while the metadata store is reachable.").add(
        int(session.state is SessionState.CONNECTED)
    )
    counter(
        "kafka_server_sessionexpirelistener_zookeeperexpires_total",
        "Sessions with the metadata store that have expired.",
    ).add(session.expirations)
    gauge("penstock_broker_registered", "1 while this broker is registered in the store.").add(
        int(session.is_registered)
    )
    gauge("kafka_server_kafkaserver_brokerstate", "1 starting, 3 running, 7 shutting down.").add(
        state.value
    )
