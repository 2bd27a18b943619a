"""BrokerHeartbeat (63): a broker reports to the KRaft controller that it is alive.

Versions 0 to 2, flexible.
"""

from typing import Annotated
from uuid import UUID

from penstock.protocol.api_key import ApiKey
from penstock.protocol.fields import Int16, Int32, Int64, Message, request, response, wire


class BrokerHeartbeatRequest(Message):
    INFO = request(ApiKey.BROKER_HEARTBEAT, versions="0-2", flexible="0+")

    broker_id: Int32 = 0
    broker_epoch: Int64 = -1
    current_metadata_offset: Int64 = 0
    want_fence: bool = False
    want_shut_down: bool = False
    offline_log_dirs: Annotated[list[UUID], wire("1+", tag=0)] = []
    cordoned_log_dirs: Annotated[list[UUID] | None, wire("2+", tag=1)] = None


class BrokerHeartbeatResponse(Message):
    INFO = response(ApiKey.BROKER_HEARTBEAT, versions="0-2", flexible="0+")

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    is_caught_up: bool = False
    is_fenced: bool = True
    should_shut_down: bool = False
