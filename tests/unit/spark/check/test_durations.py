"""Parsing durations such as `10 minutes`."""

import pytest

from penstock.spark.check.durations import parse_duration


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1 second", 1),
        ("10 minutes", 600),
        ("1 hour 30 minutes", 5400),
        ("interval 2 days", 172_800),
        ("500 milliseconds", 0.5),
        ("1 week", 604_800),
        ("0 seconds", 0),
        ("1.5 Seconds", 1.5),
        (".5 seconds", 0.5),
        ("+ 2 minutes - 30 seconds", 90),
    ],
)
def test_a_duration_in_seconds(text: str, expected: float) -> None:
    assert parse_duration(text) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("10", "write `10 seconds`"),
        ("", "missing"),
        ("soon", "not a duration"),
        ("10 parsecs", "parsecs is not one of"),
        ("1 month", "write it in days"),
        ("10minutes", "write `10 minutes`"),
        ("1 hour30 minutes", "not a duration"),
        ("1.5 hours", "only seconds may have a fraction"),
        ("-1 second", "is negative"),
    ],
)
def test_invalid_durations(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_duration(text)
