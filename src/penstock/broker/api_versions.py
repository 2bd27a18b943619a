"""The versions and features that ApiVersions reports."""

from penstock.broker.client_telemetry import ClientTelemetry
from penstock.broker.handlers.table import HANDLERS
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
    """Builds ApiVersions responses from the handler table and the cluster's feature levels."""

    def __init__(self, image: ClusterImage, telemetry: ClientTelemetry) -> None:
        self._image = image
        self._telemetry = telemetry

    def response(self, error: ErrorCode = ErrorCode.NONE) -> ApiVersionsResponse:
        features = self._image.features
        return ApiVersionsResponse(
            error,
            [
                ApiVersion(key, spec.min_version, spec.max_version)
                for key, spec in HANDLERS.items()
                if key not in _TELEMETRY or self._telemetry.has_subscriptions
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
