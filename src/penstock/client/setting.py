"""The declaration of one setting of a client."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Setting:
    """The default, documentation and allowed values of a setting."""

    default: object
    doc: str
    at_least: int | None = None
    at_most: int | None = None
    one_of: tuple[str, ...] = ()
