"""The error of admin calls with many keys, of which some have failed."""

from collections.abc import Mapping
from typing import Any

from penstock.client.errors import ClientError
from penstock.core.errors import KafkaError, nested_text


class AdminError(ClientError):
    """Some keys of a call have failed; the others were done nevertheless.

    `errors` has the error of each failed key, `results` what the call would have returned for the
    others. `code` and `message` are those of the first error.
    """

    def __init__(
        self, call: str, errors: Mapping[Any, KafkaError], results: Mapping[Any, Any]
    ) -> None:
        first = next(iter(errors.values()))
        more = len(errors) - 1
        cause = nested_text(first)
        if more:
            cause += f" (and {more} more of {len(errors) + len(results)} failed in `{call}`)"
        super().__init__(cause, first.code)
        self.errors: dict[Any, KafkaError] = dict(errors)
        self.results: dict[Any, Any] = dict(results)
