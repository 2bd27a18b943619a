"""Registration of a broker, and the election of the controller (R6)."""

from collections.abc import Mapping

from penstock.controller.election import update_partition_states
from penstock.controller.features import require_supported
from penstock.controller.image import ClusterImage
from penstock.controller.metadata import (
    BrokerRecord,
    Change,
    ClusterIdRecord,
    ControllerEpochRecord,
    ControllerRecord,
    FeaturesRecord,
    LoginSecretRecord,
    Put,
)
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
    """Returns the changes that register a starting broker and make it the controller.

    `cluster_id`, `login_secret` and `features` are used for a new store; otherwise the stored ones
    are kept. Raises UNSUPPORTED_VERSION if the broker does not support the stored feature levels.
    The broker's partitions get a new leader epoch, as after a failure (R7). The store assigns the
    broker epoch.
    """
    require_supported(broker, features if image.features is None else image.features.levels)
    epoch = image.controller_epoch + 1
    changes: list[Change] = []
    if not image.cluster_id:
        changes.append(Put(ClusterIdRecord(cluster_id)))
    if not image.login_secret:
        changes.append(Put(LoginSecretRecord(login_secret)))
    if image.features is None:
        changes.append(Put(FeaturesRecord(features, 0)))
    changes += [Put(ControllerEpochRecord(epoch)), Put(ControllerRecord(broker.broker_id, now_ms))]
    changes.append(Put(broker))
    live = image.brokers.keys() | {broker.broker_id}
    restarted = {broker.broker_id}
    return changes + update_partition_states(
        image, live, rules, controller_epoch=epoch, restarted=restarted
    )


def become_controller(
    image: ClusterImage, broker_id: int, now_ms: int, rules: ElectionRules
) -> list[Change]:
    """Returns the changes that make a registered broker the controller after a failover (R6).

    They bring the partitions up to date with brokers that failed while there was no controller.
    """
    epoch = image.controller_epoch + 1
    changes: list[Change] = [
        Put(ControllerEpochRecord(epoch)),
        Put(ControllerRecord(broker_id, now_ms)),
    ]
    return changes + update_partition_states(
        image, image.brokers.keys(), rules, controller_epoch=epoch
    )
