"""UnregisterController (94): a controller that is gone is taken out of the KRaft cluster.

Version 0, flexible.
"""

from penstock.protocol.api_key import ApiKey
from penstock.protocol.fields import Int16, Int32, Message, request, response


class UnregisterControllerRequest(Message):
    INFO = request(ApiKey.UNREGISTER_CONTROLLER, versions="0", flexible="0+")

    controller_id: Int32 = 0


class UnregisterControllerResponse(Message):
    INFO = response(ApiKey.UNREGISTER_CONTROLLER, versions="0", flexible="0+")

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = ""
