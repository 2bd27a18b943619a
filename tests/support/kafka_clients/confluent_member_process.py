"""A member of librdkafka's in a process of its own, which can be killed.

The process polls once for each line on stdin, for that many seconds, and responds with a
line of JSON: the partitions that it has.
"""

import json
import subprocess
import sys
from collections.abc import Sequence

from tests.support.kafka.broker import ROOT
from tests.support.kafka_clients.confluent_members import ConfluentGroups
from tests.support.kafka_clients.members import PolledMember


class MemberProcess(PolledMember):
    def __init__(self, bootstrap: str, group: str, topics: Sequence[str]) -> None:
        super().__init__()
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__, bootstrap, group, *topics],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=ROOT,
        )

    def poll(self, seconds: float) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{seconds}\n".encode())
        self._process.stdin.flush()
        response = self._process.stdout.readline()
        self.assignment = frozenset((topic, number) for topic, number in json.loads(response))

    def leave(self) -> None:
        """kill -9, and the process is reaped."""
        self._process.kill()
        self._process.communicate()
        self.assignment = frozenset()


def main() -> None:
    bootstrap, group, *topics = sys.argv[1:]
    member = ConfluentGroups().member(bootstrap, group, topics)
    for line in sys.stdin:
        member.poll(float(line))
        sys.stdout.write(json.dumps(sorted(member.assignment)) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
