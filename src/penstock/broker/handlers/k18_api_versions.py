"""ApiVersions (18), versions 0 to 5: returns the served APIs and the feature levels.

To a version that is not served the dispatcher responds in the format of version 0 (E4).
"""

import re
from dataclasses import dataclass

from penstock.broker.api_versions import ApiVersionManager
from penstock.broker.request import HandlerResult, Request
from penstock.core.errors import ErrorCode
from penstock.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse

_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
_FIRST_WITH_SOFTWARE = 3
_FIRST_WITH_LEVEL_0 = 4


@dataclass(frozen=True, slots=True)
class Context:
    api_versions: ApiVersionManager


def handle(context: Context, request: Request, body: ApiVersionsRequest) -> HandlerResult:
    if request.version >= _FIRST_WITH_SOFTWARE:
        software = (body.client_software_name, body.client_software_version)
        if not all(map(_SOFTWARE.fullmatch, software)):
            return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
        request.session.client_software_name, request.session.client_software_version = software
    response = context.api_versions.response()
    if request.version < _FIRST_WITH_LEVEL_0:
        # Older Java clients cannot decode a feature whose lowest level is 0.
        response.supported_features = [
            feature for feature in response.supported_features if feature.min_version > 0
        ]
    return response
