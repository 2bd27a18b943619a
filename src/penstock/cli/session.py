"""The common parts of commands that connect to a cluster: address, login, output, errors.

A command is a function whose first parameter is a `Session`. `command` adds the common options to
it and turns errors into one line and an exit code: 1 for a failure, 2 for wrong usage, 130 for
Ctrl-C.
"""

import inspect
import os
import sys
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import typer

from penstock.cli.options import OPTION, flag, option
from penstock.cli.output import Output, UsageError, fail, fail_many
from penstock.core.errors import KafkaError, format_error

if TYPE_CHECKING:
    from penstock.client.admin.admin import Admin
    from penstock.client.consumer.consumer import Consumer
    from penstock.client.producer.producer import Producer

DEFAULT_SERVER = "localhost:9092"
VARIABLE = "PENSTOCK_BOOTSTRAP_SERVERS"
DEFAULT_TIMEOUT_MS = 20_000
"""Shorter than the default of the clients, one minute, because users wait for a command."""

_COMMANDS: Final = {
    "create_topics": "penstock topic create",
    "delete_topics": "penstock topic delete",
    "list_topics": "penstock topic list",
    "describe_topics": "penstock topic describe",
    "create_partitions": "penstock topic alter",
    "delete_records": "penstock log delete-records",
    "list_offsets": "penstock offsets",
    "list_replica_end_offsets": "penstock cluster status",
    "elect_leaders": "penstock topic elect",
    "alter_partition_reassignments": "penstock log move execute",
    "list_partition_reassignments": "penstock log move list",
    "describe_configs": "penstock config describe --all",
    "incremental_alter_configs": "penstock config alter",
    "alter_configs": "penstock config alter",
    "list_config_resources": "penstock config list",
    "describe_cluster": "penstock cluster describe",
    "describe_features": "penstock cluster features",
    "update_features": "penstock cluster upgrade",
    "describe_log_dirs": "penstock log dirs",
    "describe_replica_log_dirs": "penstock log dirs",
    "alter_replica_log_dirs": "penstock log move execute",
    "describe_quorum": "penstock cluster quorum",
    "unregister_broker": "penstock cluster unregister",
    "api_versions": "penstock cluster versions",
    "list_groups": "penstock group list",
    "describe_groups": "penstock group describe --members",
    "delete_groups": "penstock group delete",
    "list_group_offsets": "penstock group describe",
    "alter_group_offsets": "penstock group reset-offsets",
    "delete_group_offsets": "penstock group delete-offsets",
    "remove_members": "penstock group remove-members",
    "describe_acls": "penstock acl list",
    "create_acls": "penstock acl add",
    "delete_acls": "penstock acl remove",
    "describe_client_quotas": "penstock quota describe",
    "alter_client_quotas": "penstock quota alter",
    "describe_user_scram_credentials": "penstock user list",
    "alter_user_scram_credentials": "penstock user create",
    "create_delegation_token": "penstock token create",
    "renew_delegation_token": "penstock token renew",
    "expire_delegation_token": "penstock token expire",
    "describe_delegation_token": "penstock token list",
    "list_transactions": "penstock txn list",
    "describe_transactions": "penstock txn describe",
    "describe_producers": "penstock txn producers",
    "abort_transaction": "penstock txn abort",
    "fence_producers": "penstock txn force-terminate",
    "force_terminate_transaction": "penstock txn force-terminate",
    "bootstrap_servers": "--bootstrap-server",
}
"""The commands that correspond to calls in errors of the client."""

BOOTSTRAP = option(
    "--bootstrap-server",
    "-b",
    default=DEFAULT_SERVER,
    envvar=VARIABLE,
    metavar="HOST:PORT,…",
    help="Brokers to connect to first.",
)
CONFIG_FILE = option(
    "--command-config",
    metavar="FILE",
    help="A property file of Kafka's clients: login, TLS, timeouts.",
)
SETTINGS = option(
    "--command-property",
    "-X",
    metavar="KEY=VALUE",
    help="A setting of the client, which overrides the file; may be repeated.",
)
TIMEOUT = option(
    "--timeout",
    metavar="SECONDS",
    min=0,
    help="How long each step may take; 20 seconds, unless the client's settings say otherwise.",
)
AS_JSON = flag("--json", help="Print JSON instead of tables.")
YES = flag("--yes", "-y", help="Do not ask for confirmation; required without a terminal.")
DRY_RUN = flag("--dry-run", help="Let the broker validate the request, and change nothing.")


class Session:
    """One run of a command: its connection settings and its output."""

    def __init__(
        self,
        bootstrap_server: str = DEFAULT_SERVER,
        config_file: Path | None = None,
        settings: list[str] | None = None,
        timeout: float | None = None,
        as_json: bool = False,
    ) -> None:
        self.out = Output(as_json)
        self.bootstrap_server = bootstrap_server
        self._config_file = config_file
        self._settings = settings or []
        self._timeout = timeout

    def options(self, kind: type[Any], **overrides: object) -> dict[str, Any]:
        """Returns the keyword arguments of a client: property file, then -X, then `overrides`.

        Overrides that are None do not count: they are options that were not given.
        """
        from penstock.client.settings import from_properties

        options: dict[str, Any] = {"client_id": "penstock-cli"}
        settings, unknown = from_properties(kind, self._properties())
        options |= settings
        if unknown:
            self.out.note(f"penstock: not used here: {', '.join(sorted(unknown))}")
        if self._timeout is not None:
            timeout_ms = max(1, int(self._timeout * 1000))
            options["default_api_timeout_ms"] = timeout_ms
            options.setdefault("request_timeout_ms", min(30_000, timeout_ms))
        options.setdefault("default_api_timeout_ms", DEFAULT_TIMEOUT_MS)
        options |= {name: value for name, value in overrides.items() if value is not None}
        if "bootstrap_servers" not in options or self.bootstrap_server != DEFAULT_SERVER:
            options["bootstrap_servers"] = self.bootstrap_server
        return options

    def admin(self) -> "Admin":
        """Returns an admin client, which the caller closes (it is a context manager)."""
        from penstock.client.admin.admin import Admin
        from penstock.client.settings import AdminOptions

        return Admin(**self.options(AdminOptions))

    def producer(self, **overrides: object) -> "Producer":
        """Returns a producer, which the caller closes."""
        from penstock.client.producer.producer import Producer

        return Producer(**self.producer_options(**overrides))

    def producer_options(self, **overrides: object) -> dict[str, Any]:
        """Returns the `options` of a producer, whose calls block for `--timeout` at most."""
        from penstock.client.settings import ProducerOptions

        options = self.options(ProducerOptions, **overrides)
        options.setdefault("max_block_ms", options["default_api_timeout_ms"])
        return options

    def consumer(self, **overrides: object) -> "Consumer":
        """Returns a consumer, which the caller closes."""
        from penstock.client.consumer.consumer import Consumer
        from penstock.client.settings import ConsumerOptions

        return Consumer(**self.options(ConsumerOptions, **overrides))

    def confirm(self, question: str, *, yes: bool) -> None:
        """Returns if the user confirms, or if `yes`. Exits otherwise.

        Raises UsageError without a terminal, where nobody can confirm.
        """
        if yes:
            return
        if not sys.stdin.isatty():
            raise UsageError(
                f"{question} There is no terminal to confirm it, so nothing was done",
                remedy="add --yes",
            )
        if not typer.confirm(question, err=True):
            fail("nothing was done", code="NOT_CONFIRMED", as_json=self.out.as_json)

    def _properties(self) -> dict[str, str]:
        from penstock.core.java_properties import PropertiesSyntaxError, parse_properties

        properties: dict[str, str] = {}
        if self._config_file is not None:
            try:
                text = self._config_file.read_text(encoding="utf-8")
            except OSError as error:
                raise UsageError(
                    f"{error.strerror}: {self._config_file}", subject="--command-config"
                ) from None
            try:
                properties |= {name: prop.value for name, prop in parse_properties(text).items()}
            except PropertiesSyntaxError as error:
                raise UsageError(
                    f"{self._config_file}:{error.line}: {error}", subject="--command-config"
                ) from None
        for setting in self._settings:
            name, equals, value = setting.partition("=")
            if not equals:
                raise UsageError(
                    "it must be KEY=VALUE, such as client.id=mine", subject=f"-X {setting}"
                )
            properties[name.strip()] = value
        return properties


def command(
    app: typer.Typer, name: str, *, connects: bool = True, **settings: Any
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Registers a function that takes a `Session` first as a command, with the common options.

    Of these, a command that does not connect to a cluster has `--json` only.
    """

    def register(function: Callable[..., None]) -> Callable[..., None]:
        app.command(name, **settings)(with_session(function, connects=connects))
        return function

    return register


def with_session(function: Callable[..., None], *, connects: bool = True) -> Callable[..., None]:
    """Returns the function that typer calls, with the common options instead of the session.

    A parameter that is a dataclass stands for the options that are its fields.
    """
    common = inspect.signature(_common if connects else _common_offline, eval_str=True).parameters
    own: list[inspect.Parameter] = []
    shared: dict[str, tuple[type, list[str]]] = {}
    for parameter in list(inspect.signature(function, eval_str=True).parameters.values())[1:]:
        kind = parameter.annotation
        if is_dataclass(kind) and isinstance(kind, type):
            options = {option.name: option for option in fields(kind)}
            shared[parameter.name] = kind, list(options)
            own += [
                parameter.replace(
                    name=name, annotation=option.type, default=option.metadata[OPTION]
                )
                for name, option in options.items()
            ]
        else:
            own.append(parameter)

    @wraps(function)
    def run(**values: Any) -> None:
        session = Session(**{name: values.pop(name) for name in common})
        for name, (kind, options) in shared.items():
            values[name] = kind(**{option: values.pop(option) for option in options})
        with_errors(session.out.as_json, lambda: function(session, **values))

    parameters = [
        parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)
        for parameter in (*own, *common.values())
    ]
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run


def _common(
    bootstrap_server: str = BOOTSTRAP,
    config_file: Path | None = CONFIG_FILE,
    settings: list[str] | None = SETTINGS,
    timeout: float | None = TIMEOUT,
    as_json: bool = AS_JSON,
) -> None:
    """The options of every command that connects to a cluster: typer reads this signature."""


def _common_offline(as_json: bool = AS_JSON) -> None:
    """The options of every other command."""


def with_errors(as_json: bool, work: Callable[[], None]) -> None:
    """Calls `work`. An error becomes a line on standard error with the remedy, and an exit code."""
    try:
        work()
    except UsageError as error:
        fail(error.message, code="USAGE", as_json=as_json, status=2)
    except KafkaError as error:
        errors: dict[object, KafkaError] = getattr(error, "errors", {})
        if errors:
            reasons = {
                str(subject): (error.code.name, describe_error(error))
                for subject, error in errors.items()
            }
            succeeded = [str(subject) for subject in getattr(error, "results", {})]
            fail_many(reasons, succeeded, as_json=as_json)
        fail(describe_error(error), code=error.code.name, as_json=as_json)
    except (KeyboardInterrupt, typer.Abort):  # the second: at a question
        raise SystemExit(130) from None
    except BrokenPipeError:
        # The reader of the output has closed it; Python must not report that at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(0) from None


def describe_error(error: KafkaError) -> str:
    """Returns the text of an error, with commands and the names of settings after -X."""
    return format_error(error, command_name)


def command_name(name: str) -> str:
    """Returns the command line's name for a call or a setting of the Python API.

    Calls become commands; settings get the names that they have in property files and after -X.
    """
    from penstock.client.settings import ConsumerOptions, ProducerOptions, settings_of

    if name in _COMMANDS:
        return _COMMANDS[name]
    if name in settings_of(ProducerOptions) or name in settings_of(ConsumerOptions):
        return name.replace("_", ".")
    return name
