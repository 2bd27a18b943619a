"""Validators of values, in the notation of `penstock.broker.config.tables`."""

import re
from typing import TypeAlias

from penstock.broker.coordinator.topic_patterns import matcher
from penstock.core.errors import KafkaError

Value: TypeAlias = bool | int | float | str | list[str] | None


def _version(value: str) -> None:
    if not re.fullmatch(r"[0-9]+\.[0-9]+(\.[0-9]+)*(-IV[0-9]+)?", value):
        raise ValueError("must be a Kafka version, such as 3.9")


def _replicas(parts: list[str]) -> None:
    if parts != ["*"] and not all(re.fullmatch("[0-9]+:[0-9]+", part) for part in parts):
        raise ValueError("must be comma-separated partition:broker pairs, or * for all")


def _reset(value: str) -> None:
    kind, _, duration = value.partition(":")
    if kind == "by_duration" and re.fullmatch(
        r"P(?=[0-9T])([0-9]+D)?(T(?=[0-9])([0-9]+H)?([0-9]+M)?([0-9]+(\.[0-9]+)?S)?)?",
        duration.upper(),
    ):
        return
    if value not in ("latest", "earliest"):
        raise ValueError("must be latest, earliest, or by_duration: with a duration such as P1D")


MATCH_PARAMETERS = (
    "client_instance_id",
    "client_id",
    "client_software_name",
    "client_software_version",
    "client_source_address",
    "client_source_port",
)


def _match(parts: list[str]) -> None:
    for part in parts:
        name, equals, pattern = part.partition("=")
        if not equals or "=" in pattern or name.strip() not in MATCH_PARAMETERS:
            raise ValueError(
                f"must be name=pattern pairs, with a name of {', '.join(MATCH_PARAMETERS)}"
            )
        try:
            matcher(pattern.strip())
        except KafkaError as error:
            reason = f"{pattern!r} is not a regular expression: {error.message}"
            raise ValueError(reason) from None


def check(validator: str, value: Value) -> None:
    """Raises ValueError with the valid values unless the value is one of them."""
    if validator == ".":
        return
    if validator[0] == "+":
        if not value and not isinstance(value, int | float):
            raise ValueError("must not be empty")
        validator = validator[1:] or "."
        check(validator, value)
    elif ".." in validator:
        _check_range(validator, value)
    elif validator[0] in "{~":
        _check_choice(validator, value)
    elif isinstance(value, list):
        {"replicas": _replicas, "match": _match}[validator](value)
    else:
        {"version": _version, "reset": _reset}[validator](str(value))


def _check_range(validator: str, value: Value) -> None:
    limits, _, extra = validator.partition("|")
    low, _, high = limits.partition("..")
    if not isinstance(value, int | float) or (extra and value == float(extra)):
        return
    if not (float(low) <= value and (not high or value <= float(high))):
        allowed = f"between {low} and {high}" if high else f"at least {low}"
        raise ValueError(f"must be {allowed}{f', or {extra}' if extra else ''}")


def _check_choice(validator: str, value: Value) -> None:
    names = validator.strip("~{}").split(",")
    choices = value if isinstance(value, list) else [str(value)]
    if validator[0] == "~":
        choices = [choice.upper() for choice in choices]
    if not set(choices) <= set(names):
        raise ValueError(f"must be one of {', '.join(names)}")
