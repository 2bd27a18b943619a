"""The `penstock` program in the test's own process: `cli = Cli("127.0.0.1:9092")`.

assert "orders" in cli("topic", "list").stdout
assert cli.json("topic", "list", "--names") == ["orders"]
"""

import json
from typing import Any

from typer.testing import CliRunner, Result

from penstock.cli.app import new_app
from penstock.cli.session import VARIABLE


class Cli:
    """Runs commands against one cluster."""

    def __init__(self, bootstrap_servers: str = "", *common: str) -> None:
        self._environment = {VARIABLE: bootstrap_servers} if bootstrap_servers else {}
        self._common = common

    def attempt(
        self, command: str, *arguments: str, stdin: str = "", env: dict[str, str] | None = None
    ) -> Result:
        """A command that may fail; an exception that it lets through is the test's."""
        result = CliRunner().invoke(
            new_app(command),
            [command, *arguments, *self._common],
            input=stdin,
            env=self._environment | (env or {}),
        )
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result

    def __call__(
        self, command: str, *arguments: str, stdin: str = "", env: dict[str, str] | None = None
    ) -> Result:
        """A command that must succeed."""
        result = self.attempt(command, *arguments, stdin=stdin, env=env)
        assert result.exit_code == 0, result.output
        return result

    def json(self, command: str, *arguments: str) -> Any:
        """Returns the output of a command with --json."""
        return json.loads(self(command, *arguments, "--json").stdout)

    def rows(self, command: str, *arguments: str) -> list[list[str]]:
        """The words of each line that a command prints under the head of its table."""
        lines = self(command, *arguments).stdout.splitlines()
        return [line.split() for line in lines if line.strip()][1:]

    def refused(self, command: str, *arguments: str, stdin: str = "", status: int = 1) -> str:
        """Returns the error output of a command that must fail with this exit code."""
        result = self.attempt(command, *arguments, stdin=stdin)
        assert result.exit_code == status, result.output
        return result.stderr
