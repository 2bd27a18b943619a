"""UpdateFeatures (57): finalized feature levels are raised or lowered.

Versions 0 to 2, flexible.
"""

from typing import Annotated

from penstock.protocol.api_key import ApiKey
from penstock.protocol.fields import Int8, Int16, Int32, Message, Struct, request, response, wire


class FeatureUpdateKey(Struct):
    feature: str = ""
    max_version_level: Int16 = 0
    allow_downgrade: Annotated[bool, wire("0")] = False
    upgrade_type: Annotated[Int8, wire("1+")] = 1


class UpdateFeaturesRequest(Message):
    INFO = request(ApiKey.UPDATE_FEATURES, versions="0-2", flexible="0+")

    timeout_ms: Int32 = 60000
    feature_updates: list[FeatureUpdateKey] = []
    validate_only: Annotated[bool, wire("1+")] = False


class UpdatableFeatureResult(Struct):
    feature: str = ""
    error_code: Int16 = 0
    error_message: str | None = ""


class UpdateFeaturesResponse(Message):
    INFO = response(ApiKey.UPDATE_FEATURES, versions="0-2", flexible="0+")

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = ""
    results: Annotated[list[UpdatableFeatureResult], wire("0-1", ignorable=True)] = []
