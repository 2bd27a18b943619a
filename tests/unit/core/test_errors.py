"""Errors are data: one function makes a sentence of their fields."""

import pytest

from penstock.core.errors import (
    CorruptRecordError,
    ErrorCode,
    KafkaError,
    UnsupportedVersionError,
    drop_traceback,
    format_error,
)


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (KafkaError(ErrorCode.INVALID_CONFIG, "it is wrong"), "it is wrong"),
        (
            KafkaError(ErrorCode.INVALID_CONFIG, "it is wrong", remedy="fix it"),
            "it is wrong: fix it",
        ),
        (
            KafkaError(
                ErrorCode.TOPIC_ALREADY_EXISTS,
                "it exists",
                subject="topic orders",
                remedy="choose another name",
            ),
            "topic orders: it exists; choose another name",
        ),
        (
            UnsupportedVersionError(
                "needs a newer broker", operation="describe_quorum", remedy="upgrade the broker"
            ),
            "describe_quorum needs a newer broker: upgrade the broker",
        ),
        (
            KafkaError(ErrorCode.INVALID_CONFIG, "acks=2: it is no number of acks", remedy="use 1"),
            "acks=2: it is no number of acks; use 1",
        ),
        (
            KafkaError(ErrorCode.INVALID_CONFIG, "it is wrong. Nothing was done", remedy="fix it"),
            "it is wrong. Nothing was done. Fix it",
        ),
    ],
)
def test_the_message_says_what_failed_why_and_what_to_do(error: KafkaError, message: str) -> None:
    assert error.message == message
    assert str(error) == f"{error.code.name}: {message}"


def test_names_of_calls_and_settings_are_those_of_the_reader() -> None:
    error = CorruptRecordError(
        "the broker says `fetch_max_bytes`",
        operation="list_offsets",
        remedy="raise `fetch_max_bytes`, not `something else`",
    )
    names = {"list_offsets": "penstock offsets", "fetch_max_bytes": "fetch.max.bytes"}
    assert format_error(error, lambda name: names.get(name, name)) == (
        "penstock offsets the broker says `fetch_max_bytes`: "
        "raise fetch.max.bytes, not `something else`"
    )
    assert error.remedy == "raise `fetch_max_bytes`, not `something else`"


def test_drop_traceback_removes_traceback_context_and_cause() -> None:
    def fail() -> None:
        try:
            raise OSError("first")
        except OSError:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "then") from None

    with pytest.raises(KafkaError) as caught:
        fail()
    error = caught.value
    assert error.__context__ is not None
    assert drop_traceback(error) is error
    references: list[object] = [error.__traceback__, error.__context__, error.__cause__]
    assert references == [None, None, None]
    assert error.message == "then"
