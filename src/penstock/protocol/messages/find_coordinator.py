"""FindCoordinator (10): which broker coordinates a group or a transactional id.

Versions 0 to 6, flexible from 3.
"""

from typing import Annotated

from penstock.protocol.api_key import ApiKey
from penstock.protocol.fields import Int8, Int16, Int32, Message, Struct, request, response, wire


class FindCoordinatorRequest(Message):
    INFO = request(ApiKey.FIND_COORDINATOR, versions="0-6", flexible="3+")

    key: Annotated[str, wire("0-3")] = ""
    key_type: Annotated[Int8, wire("1+")] = 0
    coordinator_keys: Annotated[list[str], wire("4+")] = []


class Coordinator(Struct):
    key: str = ""
    node_id: Int32 = 0
    host: str = ""
    port: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = ""


class FindCoordinatorResponse(Message):
    INFO = response(ApiKey.FIND_COORDINATOR, versions="0-6", flexible="3+")

    throttle_time_ms: Annotated[Int32, wire("1+", ignorable=True)] = 0
    error_code: Annotated[Int16, wire("0-3")] = 0
    error_message: Annotated[str | None, wire("1-3", ignorable=True)] = ""
    node_id: Annotated[Int32, wire("0-3")] = 0
    host: Annotated[str, wire("0-3")] = ""
    port: Annotated[Int32, wire("0-3")] = 0
    coordinators: Annotated[list[Coordinator], wire("4+")] = []
