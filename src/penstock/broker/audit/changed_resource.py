"""What a change of the audit log says about one resource."""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, TypeAlias

Details: TypeAlias = dict[str, Any]


class ChangedResource(NamedTuple):
    """What a request has done, or failed to do, to one resource."""

    resource_type: str
    name: str
    details: Details
    error_code: int = 0


Describe: TypeAlias = Callable[[Any, Any], Iterator[ChangedResource]]
"""`describe(request, response)`: yields the resources. The response has only its defaults if the
whole request failed."""
