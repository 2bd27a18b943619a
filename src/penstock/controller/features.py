"""Which feature levels the cluster keeps to: what a broker must support, and how they change.

No level of today's features keeps what a lower one could not read: as in Kafka, a safe downgrade
may do all that an unsafe one may.
"""

from collections.abc import Mapping
from enum import IntEnum

from penstock.controller.image import ClusterImage
from penstock.controller.metadata import BrokerRecord, Change, FeaturesRecord, Put
from penstock.controller.result import ControllerResult
from penstock.core.errors import ErrorCode, KafkaError
from penstock.protocol.messages.update_features import (
    FeatureUpdateKey,
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)


class UpgradeType(IntEnum):
    """What a client lets happen to a level. The numbers are those of the wire."""

    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


def require_supported(broker: BrokerRecord, levels: Mapping[str, int]) -> None:
    """Raises where a broker could not keep to these levels: it must not join the cluster."""
    for name, level in levels.items():
        reason = _not_supported(broker, name, level)
        if reason is not None:
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"the cluster has the feature {name} at level {level}, but {reason}: start a "
                "release that supports it, or lower the level with the release that set it",
            )


def update_features(
    image: ClusterImage, request: UpdateFeaturesRequest
) -> ControllerResult[UpdateFeaturesResponse]:
    """Levels go up or down, all of them or none. Level 0 is that of a feature that is off.

    `allow_downgrade`, which version 0 has in place of an upgrade type, changes nothing: Kafka has
    not looked at it since it lost ZooKeeper.
    """
    levels = _levels(image)
    # Where a feature is named twice, the last one counts.
    updates = {each.feature: each for each in request.feature_updates}
    for name, update in updates.items():
        reason = _reason_against(image, levels.get(name, 0), update)
        if reason is not None:
            message = (
                f"{name} cannot be set to level {update.max_version_level}: {reason}; "
                "no feature was changed"
            )
            code = ErrorCode.INVALID_UPDATE_VERSION
            return ControllerResult(
                [], UpdateFeaturesResponse(error_code=code, error_message=message)
            )
    changes: list[Change] = []
    if not request.validate_only:
        wanted = {name: update.max_version_level for name, update in updates.items()}
        changes = _finalize(image, {**levels, **wanted})
    results = [
        UpdatableFeatureResult(each.feature, ErrorCode.NONE, None)
        for each in request.feature_updates
    ]
    return ControllerResult(changes, UpdateFeaturesResponse(error_message=None, results=results))


def _levels(image: ClusterImage) -> Mapping[str, int]:
    return {} if image.features is None else image.features.levels


def _finalize(image: ClusterImage, levels: Mapping[str, int]) -> list[Change]:
    """The epoch rises where a level changes; nothing happens where none does."""
    after = {name: level for name, level in levels.items() if level}
    if after == _levels(image):
        return []
    epoch = 0 if image.features is None else image.features.epoch + 1
    return [Put(FeaturesRecord(after, epoch))]


def _reason_against(image: ClusterImage, current: int, update: FeatureUpdateKey) -> str | None:
    """Why the level cannot change like this; None where it can. The order of checks is Kafka's."""
    name, level = update.feature, update.max_version_level
    if update.upgrade_type not in tuple(UpgradeType):
        known = ", ".join(f"{each.value} ({each.name})" for each in UpgradeType)
        return f"the upgrade type {update.upgrade_type} is unknown, use one of {known}"
    if level < 0:
        return "the lowest level is 0, which turns a feature off"
    known_features = {each for broker in image.brokers.values() for each in broker.features}
    if name not in known_features:
        return f"there is no such feature, only {', '.join(sorted(known_features))}"
    for broker in image.brokers.values():
        reason = _not_supported(broker, name, level)
        if reason is not None:
            return reason
    is_upgrade = update.upgrade_type == UpgradeType.UPGRADE
    if level < current and is_upgrade:
        return (
            f"that is lower than {current}, its level now, so the upgrade type must be "
            "SAFE_DOWNGRADE or UNSAFE_DOWNGRADE"
        )
    if level > current and not is_upgrade:
        return f"that is higher than {current}, its level now, so it is no downgrade"
    return None


def _not_supported(broker: BrokerRecord, name: str, level: int) -> str | None:
    """Why a broker cannot run at this level; None where it can. Level 0 needs no support."""
    known = broker.features.get(name)
    if known is None:
        return f"broker {broker.broker_id} does not know this feature" if level else None
    low, high = known
    if low <= level <= high:
        return None
    return f"broker {broker.broker_id} supports levels {low} to {high}"
