"""The result of a controller command: changes for the store and the response for the caller."""

from typing import Generic, NamedTuple, TypeVar

from penstock.controller.metadata import Change

R = TypeVar("R")


class ControllerResult(NamedTuple, Generic[R]):
    """Changes that the host commits atomically before it returns `response`.

    Each key occurs at most once in `changes`, so that every change is one operation of a multi.
    """

    changes: list[Change]
    response: R
