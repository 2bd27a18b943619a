"""ApiVersions (18): which APIs a broker serves, in which versions, and its features.

Versions 0 to 5, flexible from 3.
"""

from typing import Annotated

from penstock.protocol.api_key import ApiKey
from penstock.protocol.fields import Int16, Int32, Int64, Message, Struct, request, response, wire


class ApiVersionsRequest(Message):
    INFO = request(ApiKey.API_VERSIONS, versions="0-5", flexible="3+")

    client_software_name: Annotated[str, wire("3+", ignorable=True)] = ""
    client_software_version: Annotated[str, wire("3+", ignorable=True)] = ""
    cluster_id: Annotated[str | None, wire("5+", ignorable=True)] = None
    node_id: Annotated[Int32, wire("5+", ignorable=True)] = -1


class ApiVersion(Struct):
    api_key: Int16 = 0
    min_version: Int16 = 0
    max_version: Int16 = 0


class SupportedFeatureKey(Struct):
    name: str = ""
    min_version: Int16 = 0
    max_version: Int16 = 0


class FinalizedFeatureKey(Struct):
    name: str = ""
    max_version_level: Int16 = 0
    min_version_level: Int16 = 0


class ApiVersionsResponse(Message):
    INFO = response(ApiKey.API_VERSIONS, versions="0-5", flexible="3+")

    error_code: Int16 = 0
    api_keys: list[ApiVersion] = []
    throttle_time_ms: Annotated[Int32, wire("1+", ignorable=True)] = 0
    supported_features: Annotated[list[SupportedFeatureKey], wire("3+", tag=0, ignorable=True)] = []
    finalized_features_epoch: Annotated[Int64, wire("3+", tag=1, ignorable=True)] = -1
    finalized_features: Annotated[list[FinalizedFeatureKey], wire("3+", tag=2, ignorable=True)] = []
    zk_migration_ready: Annotated[bool, wire("3+", tag=3, ignorable=True)] = False
