"""Which messages belong to an API key, in which versions, and under which headers.

The file and the classes of an API are named after its key: `ApiKey.LIST_OFFSETS` is
`ListOffsetsRequest` and `ListOffsetsResponse` in `messages/list_offsets.py`. They are imported when
first asked for.
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
"""A version that no message can have: it does not fit in the header."""


@dataclass(frozen=True, slots=True)
class Api:
    """An API: its messages and the stable versions that both have."""

    key: ApiKey
    request: type[Message]
    response: type[Message]
    min_version: int
    max_version: int
    first_flexible_version: int
    """Beyond every version where none is flexible."""

    def request_header_version(self, version: int) -> int:
        """Which RequestHeader leads a request of this version, be it a known version or not."""
        if self.key is ApiKey.CONTROLLED_SHUTDOWN and version == 0:
            return 0
        return 2 if version >= self.first_flexible_version else 1

    def response_header_version(self, version: int) -> int:
        """Which ResponseHeader leads a response.

        ApiVersions keeps version 0: its response may go to a client whose version of the API the
        broker does not know, and which must be able to read it.
        """
        if self.key is ApiKey.API_VERSIONS:
            return 0
        return 1 if version >= self.first_flexible_version else 0

    def check_version(self, version: int) -> None:
        """Raise UnsupportedVersionError unless the version is one that is offered."""
        if not self.min_version <= version <= self.max_version:
            raise UnsupportedVersionError(
                f"{self.key.name} is served in versions {self.min_version} to "
                f"{self.max_version}, not {version}: ask with ApiVersions first"
            )


@cache
def api(key: int) -> Api:
    """The API of a key; UnsupportedVersionError when Kafka has none of this number."""
    try:
        known = ApiKey(key)
    except ValueError:
        raise UnsupportedVersionError(f"there is no API with key {key}") from None
    module = import_module(f"penstock.protocol.messages.{known.name.lower()}")
    name = known.name.title().replace("_", "")
    request: type[Message] = getattr(module, f"{name}Request")
    response: type[Message] = getattr(module, f"{name}Response")
    info = request.INFO
    # Every API that has flexible versions keeps them to the end, so the first one says it all.
    first_flexible = NEVER if info.flexible == NO_VERSIONS else info.flexible.low
    return Api(known, request, response, info.versions.low, info.max_stable_version, first_flexible)
