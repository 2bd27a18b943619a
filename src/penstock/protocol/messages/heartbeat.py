"""Heartbeat (12): a classic group member says that it is alive, and learns of rebalances.

Versions 0 to 4, flexible from 4.
"""

from typing import Annotated

from penstock.protocol.api_key import ApiKey
from penstock.protocol.fields import Int16, Int32, Message, request, response, wire


class HeartbeatRequest(Message):
    INFO = request(ApiKey.HEARTBEAT, versions="0-4", flexible="4+")

    group_id: str = ""
    generation_id: Int32 = 0
    member_id: str = ""
    group_instance_id: Annotated[str | None, wire("3+")] = None


class HeartbeatResponse(Message):
    INFO = response(ApiKey.HEARTBEAT, versions="0-4", flexible="4+")

    throttle_time_ms: Annotated[Int32, wire("1+", ignorable=True)] = 0
    error_code: Int16 = 0
