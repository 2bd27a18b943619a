"""ControllerRegistration (70): a controller registers with the KRaft leader.

Version 0, flexible.
"""

from uuid import UUID

from penstock.protocol.api_key import ApiKey
from penstock.protocol.fields import (
    ZERO_UUID,
    Int16,
    Int32,
    Message,
    Struct,
    UInt16,
    request,
    response,
)


class ControllerRegistrationListener(Struct):
    name: str = ""
    host: str = ""
    port: UInt16 = 0
    security_protocol: Int16 = 0


class ControllerRegistrationFeature(Struct):
    name: str = ""
    min_supported_version: Int16 = 0
    max_supported_version: Int16 = 0


class ControllerRegistrationRequest(Message):
    INFO = request(ApiKey.CONTROLLER_REGISTRATION, versions="0", flexible="0+")

    controller_id: Int32 = 0
    incarnation_id: UUID = ZERO_UUID
    zk_migration_ready: bool = False
    listeners: list[ControllerRegistrationListener] = []
    features: list[ControllerRegistrationFeature] = []


class ControllerRegistrationResponse(Message):
    INFO = response(ApiKey.CONTROLLER_REGISTRATION, versions="0", flexible="0+")

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = ""
