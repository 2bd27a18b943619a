"""Registration of a broker, and the election of the controller (R6)."""

from collections.abc import Mapping

from penstock.controller.features import require_supported
from penstock.controller.image import ClusterImage
from penstock.controller.metadata import (
    BrokerRecord,
    Change,
    ControllerEpochRecord,
    ControllerRecord,
    FeaturesRecord,
    LoginSecretRecord,
    Put,
)


def register_broker(
    image: ClusterImage,
    broker: BrokerRecord,
    *,
    login_secret: bytes,
    features: Mapping[str, int],
) -> list[Change]:
    """Returns the changes that register a starting broker.

    `login_secret` and `features` are used for a new store; otherwise the stored ones are kept.
    Raises UNSUPPORTED_VERSION if the broker does not support the stored feature levels.
    The store assigns the broker epoch. The controller reacts to the registration.
    """
    require_supported(broker, features if image.features is None else image.features.levels)
    changes: list[Change] = []
    if not image.login_secret:
        changes.append(Put(LoginSecretRecord(login_secret)))
    if image.features is None:
        changes.append(Put(FeaturesRecord(features, 0)))
    return [*changes, Put(broker)]


def claim_controller(image: ClusterImage, broker_id: int, now_ms: int) -> list[Change]:
    """Returns the changes that make a registered broker the controller (R6).

    The new controller then brings the partitions up to date with the brokers that are up.
    """
    return [
        Put(ControllerEpochRecord(image.controller_epoch + 1)),
        Put(ControllerRecord(broker_id, now_ms)),
    ]
