"""The start of a controller as one list of changes: registration, claim, states of partitions."""

from collections.abc import Collection, Mapping

from penstock.controller.brokers import claim_controller, register_broker
from penstock.controller.election import update_partition_states
from penstock.controller.image import ClusterImage
from penstock.controller.metadata import BrokerRecord, Change, ClusterIdRecord, Put
from penstock.controller.partition_state_machine import ElectionRules


def register_as_controller(
    image: ClusterImage,
    broker: BrokerRecord,
    *,
    cluster_id: str,
    login_secret: bytes,
    features: Mapping[str, int],
    now_ms: int,
    rules: ElectionRules,
) -> list[Change]:
    """The changes of a broker that starts and becomes the controller."""
    registration = register_broker(image, broker, login_secret=login_secret, features=features)
    if not image.cluster_id:
        registration.insert(0, Put(ClusterIdRecord(cluster_id)))
    live = image.brokers.keys() | {broker.broker_id}
    restarted = {broker.broker_id}
    return registration + _claim(image, broker.broker_id, now_ms, rules, live, restarted)


def become_controller(
    image: ClusterImage, broker_id: int, now_ms: int, rules: ElectionRules
) -> list[Change]:
    """The changes of a registered broker that becomes the controller after a failover."""
    return _claim(image, broker_id, now_ms, rules, image.brokers.keys(), ())


def _claim(
    image: ClusterImage,
    broker_id: int,
    now_ms: int,
    rules: ElectionRules,
    live: Collection[int],
    restarted: Collection[int],
) -> list[Change]:
    return claim_controller(image, broker_id, now_ms) + update_partition_states(
        image, live, rules, controller_epoch=image.controller_epoch + 1, restarted=restarted
    )
