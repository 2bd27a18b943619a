"""The result of a controller command: changes, replicas to stop, and the caller's response."""

from types import MappingProxyType
from typing import Generic, NamedTuple, TypeVar

from penstock.controller.broker_updates import ReplicaStops
from penstock.controller.metadata import Change

R = TypeVar("R")


class ControllerResult(NamedTuple, Generic[R]):
    """Changes that the host commits atomically before it returns `response`.

    Each key occurs at most once in `changes`, so that every change is one operation of a multi.
    `stops` are sent to brokers with the changes (`broker_updates`).
    """

    changes: list[Change]
    response: R
    stops: ReplicaStops = MappingProxyType({})
