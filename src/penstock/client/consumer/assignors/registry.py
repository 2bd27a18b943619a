"""The assignors of `partition_assignment_strategy`, by name or class."""

from collections.abc import Iterable
from typing import Final

from penstock.client.consumer.assignors.model import Assignor, RebalanceProtocol
from penstock.client.consumer.assignors.range import RangeAssignor
from penstock.client.consumer.assignors.roundrobin import RoundRobinAssignor
from penstock.client.consumer.assignors.sticky import CooperativeStickyAssignor, StickyAssignor
from penstock.client.errors import ConfigError

AssignorChoice = str | type[Assignor] | Assignor

_BUILT_IN: Final[tuple[type[Assignor], ...]] = (
    RangeAssignor,
    RoundRobinAssignor,
    StickyAssignor,
    CooperativeStickyAssignor,
)
_BY_NAME: Final = {assignor.name: assignor for assignor in _BUILT_IN} | {
    f"org.apache.kafka.clients.consumer.{assignor.__name__}": assignor for assignor in _BUILT_IN
}


def assignors_of(choices: str | Iterable[AssignorChoice]) -> list[Assignor]:
    """Returns the assignors of the setting, in order of preference.

    Each is a name ("range", "cooperative-sticky" …, or Kafka's class name), a subclass of
    `Assignor`, or an instance of one. Names may be one string with commas.
    """
    choice_list = choices.split(",") if isinstance(choices, str) else choices
    assignors = [_assignor(choice) for choice in choice_list]
    if not assignors:
        raise ConfigError(
            "`partition_assignment_strategy` is empty", remedy="name an assignor, such as 'range'"
        )
    names = [assignor.name for assignor in assignors]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(
                f"`partition_assignment_strategy` has two assignors named {name!r}",
                remedy="give each a name of its own, by which the group chooses",
            )
    common_protocol(assignors)
    return assignors


def common_protocol(assignors: Iterable[Assignor]) -> RebalanceProtocol:
    """Returns the newest protocol that all of them support."""
    common = set(RebalanceProtocol)
    for assignor in assignors:
        common &= set(assignor.protocols)
    if not common:
        raise ConfigError(
            "the assignors in `partition_assignment_strategy` have no rebalance protocol in "
            "common; all must support EAGER, or all COOPERATIVE"
        )
    return max(common)


def _assignor(choice: AssignorChoice) -> Assignor:
    if isinstance(choice, Assignor):
        return choice
    if isinstance(choice, str):
        built_in = _BY_NAME.get(choice.strip())
        if built_in is None:
            raise ConfigError(
                f"`partition_assignment_strategy`: there is no assignor {choice.strip()!r}",
                remedy=f"use {', '.join(a.name for a in _BUILT_IN)}, or a class of your own that "
                "extends penstock.client.consumer.assignors.Assignor",
            )
        return built_in()
    assignor = choice()
    if not isinstance(assignor, Assignor):
        raise ConfigError(
            f"`partition_assignment_strategy`: {choice!r} is neither the name of an assignor nor a "
            "class that extends penstock.client.consumer.assignors.Assignor"
        )
    return assignor
