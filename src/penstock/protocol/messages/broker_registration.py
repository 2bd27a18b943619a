"""BrokerRegistration (62): a broker registers with the KRaft controller.

Versions 0 to 4, flexible.
"""

from typing import Annotated
from uuid import UUID

from penstock.protocol.api_key import ApiKey
from penstock.protocol.fields import (
    ZERO_UUID,
    Int16,
    Int32,
    Int64,
    Message,
    Struct,
    UInt16,
    request,
    response,
    wire,
)


class BrokerRegistrationListener(Struct):
    name: str = ""
    host: str = ""
    port: UInt16 = 0
    security_protocol: Int16 = 0


class BrokerRegistrationFeature(Struct):
    name: str = ""
    min_supported_version: Int16 = 0
    max_supported_version: Int16 = 0


class BrokerRegistrationRequest(Message):
    INFO = request(ApiKey.BROKER_REGISTRATION, versions="0-4", flexible="0+")

    broker_id: Int32 = 0
    cluster_id: str = ""
    incarnation_id: UUID = ZERO_UUID
    listeners: list[BrokerRegistrationListener] = []
    features: list[BrokerRegistrationFeature] = []
    rack: str | None = ""
    is_migrating_zk_broker: Annotated[bool, wire("1+")] = False
    log_dirs: Annotated[list[UUID], wire("2+", ignorable=True)] = []
    previous_broker_epoch: Annotated[Int64, wire("3+", ignorable=True)] = -1


class BrokerRegistrationResponse(Message):
    INFO = response(ApiKey.BROKER_REGISTRATION, versions="0-4", flexible="0+")

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    broker_epoch: Int64 = -1
