"""The APIs that a broker serves, with the versions and features that ApiVersions reports."""

from penstock.broker.client_telemetry import ClientTelemetry
from penstock.broker.handlers.table import CLUSTER_APIS, HANDLERS, HandlerSpec
from penstock.broker.metadata.features import SUPPORTED_FEATURES
from penstock.controller.image import ClusterImage
from penstock.core.errors import ErrorCode
from penstock.protocol.api_key import ApiKey
from penstock.protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)

_TELEMETRY = frozenset({ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, ApiKey.PUSH_TELEMETRY})
"""Advertised only while a client-metrics subscription exists, because clients then push metrics."""


class ApiVersionManager:
    """Selects APIs from the handler table, and builds ApiVersions responses with them."""

    def __init__(
        self, image: ClusterImage, telemetry: ClientTelemetry, *, is_single_node: bool
    ) -> None:
        """`is_single_node` says that this broker is the only one its cluster can have."""
        self._image = image
        self._telemetry = telemetry
        self._unserved = CLUSTER_APIS if is_single_node else frozenset[ApiKey]()

    def handler(self, key: ApiKey) -> HandlerSpec | None:
        """Returns how the API is handled; None if this broker does not serve it."""
        return None if key in self._unserved else HANDLERS.get(key)

    def response(self, error: ErrorCode = ErrorCode.NONE) -> ApiVersionsResponse:
        features = self._image.features
        return ApiVersionsResponse(
            error,
            [
                ApiVersion(key, spec.min_version, spec.max_version)
                for key, spec in HANDLERS.items()
                if key not in self._unserved
                and (key not in _TELEMETRY or self._telemetry.has_subscriptions)
            ],
            supported_features=[
                SupportedFeatureKey(name, low, high)
                for name, (low, high) in SUPPORTED_FEATURES.items()
            ],
            finalized_features_epoch=-1 if features is None else features.epoch,
            finalized_features=[
                FinalizedFeatureKey(name, level, level)
                for name, level in ({} if features is None else features.levels).items()
            ],
        )
