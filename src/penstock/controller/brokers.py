"""A broker joins, and one of them becomes the controller (R6)."""

from collections.abc import Mapping

from msgspec.structs import replace

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
    Put,
)
from penstock.controller.partition_state_machine import ElectionRules


def register_as_controller(
    image: ClusterImage,
    broker: BrokerRecord,
    *,
    cluster_id: str,
    features: Mapping[str, int],
    now_ms: int,
    rules: ElectionRules,
) -> list[Change]:
    """A broker starts and becomes the controller, on a new store or on one with a past.

    `cluster_id` and the levels of `features` are for a new store; one that has them keeps them, and
    is refused where it has levels that this broker does not support. The broker's epoch is raised
    above those of earlier registrations unless the store gave a higher one. Its partitions come
    back in a new leader epoch, as after the failure that its absence was (R7).
    """
    require_supported(broker, features if image.features is None else image.features.levels)
    epoch = image.controller_epoch + 1
    broker = replace(broker, epoch=max(broker.epoch, next_broker_epoch(image)))
    changes: list[Change] = []
    if not image.cluster_id:
        changes.append(Put(ClusterIdRecord(cluster_id)))
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
    """A registered broker takes over from a controller that is gone (R6).

    What happened while nobody decided is made up for.
    """
    epoch = image.controller_epoch + 1
    changes: list[Change] = [
        Put(ControllerEpochRecord(epoch)),
        Put(ControllerRecord(broker_id, now_ms)),
    ]
    return changes + update_partition_states(
        image, image.brokers.keys(), rules, controller_epoch=epoch
    )


def next_broker_epoch(image: ClusterImage) -> int:
    """An epoch no registration had: for stores that do not count registrations themselves.

    Registrations do not outlive a store of one node, but the controller epoch does, and rises with
    each start.
    """
    registered = (broker.epoch for broker in image.brokers.values())
    return max(image.controller_epoch, *registered, 0) + 1
