"""Failures on their way back to the client."""

from penstock.core.errors import ErrorCode, KafkaError
from penstock.protocol.api import api
from penstock.protocol.api_key import ApiKey
from penstock.protocol.fields import Message, Struct


class CloseConnectionError(Exception):
    """The client cannot be answered, only left: its text says why, for the log."""


def error_answer(api_key: ApiKey, version: int, error: BaseException) -> Message | None:
    """The response of an API that says nothing but this error; None where it has no place for it.

    An unexpected exception stays in the broker's log: its text may hold what is not the client's.
    """
    answer = api(api_key).response()
    if not hasattr(answer, "error_code"):
        return None
    answer.error_code = error.code if isinstance(error, KafkaError) else _UNKNOWN
    if hasattr(answer, "error_message"):
        answer.error_message = error.message if isinstance(error, KafkaError) else _SEE_LOG
    return answer


def forget_frames(error: BaseException) -> None:
    """For an error that was kept: its traceback holds all that the functions on its way held.

    What a hostile batch was unpacked to would stay until the garbage collector comes by.
    """
    error.__traceback__ = error.__context__ = error.__cause__ = None


def shorten_messages(answer: Struct) -> bool:
    """Cuts error messages that are longer than anybody reads; says whether there were any."""
    found = False
    for name in answer.__struct_fields__:
        value = getattr(answer, name)
        if isinstance(value, str):
            if name.endswith("error_message") and len(value) > _LONGEST_MESSAGE:
                setattr(answer, name, value[: _LONGEST_MESSAGE - 1] + "…")
                found = True
        elif isinstance(value, Struct):
            found |= shorten_messages(value)
        elif isinstance(value, list):
            for each in value:
                if isinstance(each, Struct):
                    found |= shorten_messages(each)
    return found


_LONGEST_MESSAGE = 1000
_UNKNOWN = ErrorCode.UNKNOWN_SERVER_ERROR
_SEE_LOG = "the broker met an unexpected error; its log says more"
