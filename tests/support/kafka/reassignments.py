"""kafka-reassign-partitions.sh with a plan, and the throttles that it sets and removes."""

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from tests.support.kafka.tools import Shell, ToolRun

RATES = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
LISTS = ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas")
NO_THROTTLES: tuple[dict[str, str], dict[int, dict[str, str]]] = ({}, {1: {}, 2: {}, 3: {}})


class Plan:
    """A reassignment file, and the tool that is run with it."""

    def __init__(
        self, shell: Shell, directory: Path, partitions: Mapping[tuple[str, int], Sequence[int]]
    ) -> None:
        self._shell = shell
        self._path = directory / "plan.json"
        self.write(
            {"topic": topic, "partition": number, "replicas": list(replicas)}
            for (topic, number), replicas in partitions.items()
        )

    def write(self, partitions: Iterable[Mapping[str, object]]) -> None:
        self._path.write_text(json.dumps({"version": 1, "partitions": list(partitions)}))

    def __call__(self, action: str, *options: str) -> ToolRun:
        return self._shell(
            *("reassign-partitions", action, *options),
            *("--reassignment-json-file", str(self._path)),
        )


def throttles(shell: Shell, topic: str) -> tuple[dict[str, str], dict[int, dict[str, str]]]:
    """Returns the throttled replicas of a topic, and the rates of each broker."""

    def described(*entity: str) -> dict[str, str]:
        lines = shell("configs", "--describe", *entity).lines[1:]
        entries = (line.split(" sensitive=")[0].partition("=") for line in lines)
        return {name: value for name, _, value in entries if name in (*RATES, *LISTS)}

    rates = {number: described("--broker", str(number)) for number in (1, 2, 3)}
    return described("--topic", topic), rates
