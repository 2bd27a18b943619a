"""Maps API keys to their messages, versions and headers.

The file and the classes of an API are named after its key: `ApiKey.LIST_OFFSETS` is
`ListOffsetsRequest` and `ListOffsetsResponse` in `messages/list_offsets.py`. They are imported on
first use.
"""

from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Final

from penstock.core.errors import UnsupportedVersionError
from penstock.protocol.api_key import ApiKey
from penstock.protocol.fields import Message
from penstock.protocol.versions import NO_VERSIONS

NEVER: Final = 0x8000
"""A version that no message can have, because it does not fit into the header."""


@dataclass(frozen=True, slots=True)
class Api:
    """An API: its messages and their stable versions."""

    key: ApiKey
    request: type[Message]
    response: type[Message]
    min_version: int
    max_version: int
    first_flexible_version: int
    """`NEVER` if no version is flexible."""

    def request_header_version(self, version: int) -> int:
        """Returns the RequestHeader version of a request, even if its version is unknown."""
        if self.key is ApiKey.CONTROLLED_SHUTDOWN and version == 0:
            return 0
        return 2 if version >= self.first_flexible_version else 1

    def response_header_version(self, version: int) -> int:
        """Returns the ResponseHeader version of a response.

        ApiVersions always has version 0, so that a client can read the response even if the broker
        does not know the version of its request.
        """
        if self.key is ApiKey.API_VERSIONS:
            return 0
        return 1 if version >= self.first_flexible_version else 0


@cache
def api(key: int) -> Api:
    """Returns the API of a key. Raises UnsupportedVersionError if Kafka has no such key."""
    try:
        api_key = ApiKey(key)
    except ValueError:
        raise UnsupportedVersionError(f"there is no API with key {key}") from None
    module = import_module(f"penstock.protocol.messages.{api_key.name.lower()}")
    name = api_key.name.title().replace("_", "")
    request: type[Message] = getattr(module, f"{name}Request")
    response: type[Message] = getattr(module, f"{name}Response")
    info = request.INFO
    # All versions after the first flexible one are flexible, too.
    first_flexible = NEVER if info.flexible == NO_VERSIONS else info.flexible.low
    return Api(
        api_key, request, response, info.versions.low, info.max_stable_version, first_flexible
    )
