"""What a command of the controller decides: changes for the store, and the reply for the caller."""

from typing import Generic, NamedTuple, TypeVar

from penstock.controller.metadata import Change

R = TypeVar("R")


class Result(NamedTuple, Generic[R]):
    """Nothing has happened yet: the host commits `changes` as a whole, then sends `reply`.

    No key is in `changes` twice, so that each is one operation of an atomic multi.
    """

    changes: list[Change]
    reply: R
