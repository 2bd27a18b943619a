"""Finalized feature levels of the cluster: what a broker must support, and how levels change.

No current level writes data that a lower one cannot read. So, as in Kafka, a safe downgrade may do
everything that an unsafe one may.
"""

from collections.abc import Mapping

from penstock.controller.image import ClusterImage
from penstock.controller.metadata import BrokerRecord, Change, FeaturesRecord, Put
from penstock.controller.result import ControllerResult
from penstock.core.errors import ErrorCode, KafkaError
from penstock.protocol.enums import UpgradeType
from penstock.protocol.messages.update_features import (
    FeatureUpdateKey,
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)


def require_supported(broker: BrokerRecord, levels: Mapping[str, int]) -> None:
    """Raises UNSUPPORTED_VERSION if a broker does not support these levels and must not join."""
    for name, level in levels.items():
        reason = _not_supported(broker, name, level)
        if reason is not None:
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"the cluster has the feature {name} at level {level}, but {reason}",
                remedy=(
                    "start a release that supports it, or lower the level with the release that "
                    "set it"
                ),
            )


def update_features(
    image: ClusterImage, request: UpdateFeaturesRequest
) -> ControllerResult[UpdateFeaturesResponse]:
    """Changes all named levels, or none. Level 0 disables a feature.

    `allow_downgrade`, which version 0 has in place of an upgrade type, is ignored: Kafka has not
    read it since it dropped ZooKeeper.
    """
    levels = _levels(image)
    # If a feature is named twice, the last one counts.
    updates = {update.feature: update for update in request.feature_updates}
    for name, update in updates.items():
        reason = _objection(image, levels.get(name, 0), update)
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
        new_levels = {name: update.max_version_level for name, update in updates.items()}
        changes = finalize_levels(image, {**levels, **new_levels})
    results = [
        UpdatableFeatureResult(update.feature, ErrorCode.NONE, None)
        for update in request.feature_updates
    ]
    return ControllerResult(changes, UpdateFeaturesResponse(error_message=None, results=results))


def _levels(image: ClusterImage) -> Mapping[str, int]:
    return {} if image.features is None else image.features.levels


def finalize_levels(image: ClusterImage, levels: Mapping[str, int]) -> list[Change]:
    """Returns the change to these levels in a new epoch; no change if they stay the same."""
    enabled = {name: level for name, level in levels.items() if level}
    if enabled == _levels(image):
        return []
    epoch = 0 if image.features is None else image.features.epoch + 1
    return [Put(FeaturesRecord(enabled, epoch))]


def _objection(image: ClusterImage, current: int, update: FeatureUpdateKey) -> str | None:
    """Returns why the level cannot change like this, or None. The checks are in Kafka's order."""
    name, level = update.feature, update.max_version_level
    if update.upgrade_type not in tuple(UpgradeType):
        types = ", ".join(f"{kind.value} ({kind.name})" for kind in UpgradeType)
        return f"the upgrade type {update.upgrade_type} is unknown, use one of {types}"
    if level < 0:
        return "the lowest level is 0, which turns a feature off"
    known_features = {feature for broker in image.brokers.values() for feature in broker.features}
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
    """Returns why a broker cannot run at this level, or None. Level 0 needs no support."""
    supported = broker.features.get(name)
    if supported is None:
        return f"broker {broker.broker_id} does not know this feature" if level else None
    low, high = supported
    if low <= level <= high:
        return None
    return f"broker {broker.broker_id} supports levels {low} to {high}"
