"""Errors of handlers on their way to the client."""

from functools import cache

from penstock.core.errors import ErrorCode, KafkaError
from penstock.protocol.api import api
from penstock.protocol.api_key import ApiKey
from penstock.protocol.fields import Message, Struct
from penstock.protocol.schema import fields_of

_MAX_MESSAGE_LENGTH = 1000
_SEE_LOG = "the broker met an unexpected error; its log says more"


class CloseConnectionError(Exception):
    """The connection must be closed without a response; the text is the reason for the log."""


class ClientLeftError(Exception):
    """The client has closed its connection: the request is dropped without a response."""


def error_response(api_key: ApiKey, version: int, error: BaseException) -> Message | None:
    """Returns a response that has only this error; None if this version has no top-level error.

    The text of an unexpected exception stays in the broker's log: it may contain data of others.
    """
    response = api(api_key).response()
    if not _has_error_code(type(response), version):
        return None
    if not isinstance(error, KafkaError):
        error = KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, _SEE_LOG)
    setattr(response, "error_code", error.code)  # noqa: B010 - mypy does not know the class
    if hasattr(response, "error_message"):
        response.error_message = error.message
    return response


@cache
def _has_error_code(response: type[Message], version: int) -> bool:
    return any(
        field.name == "error_code" and version in field.versions for field in fields_of(response)
    )


def truncate_error_messages(response: Struct) -> bool:
    """Truncates error messages of more than 1,000 characters; returns whether there were any."""
    is_truncated = False
    for name in response.__struct_fields__:
        value = getattr(response, name)
        if isinstance(value, str):
            if name.endswith("error_message") and len(value) > _MAX_MESSAGE_LENGTH:
                setattr(response, name, value[: _MAX_MESSAGE_LENGTH - 1] + "…")
                is_truncated = True
        elif isinstance(value, Struct):
            is_truncated |= truncate_error_messages(value)
        elif isinstance(value, list):
            for element in value:
                if isinstance(element, Struct):
                    is_truncated |= truncate_error_messages(element)
    return is_truncated
