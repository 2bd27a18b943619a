"""`penstock config`: kafka-configs.sh without quotas and users, and kafka-client-metrics.sh."""

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from penstock.cli import complete
from penstock.cli.admin.json_files import read_text
from penstock.cli.app import new_group
from penstock.cli.names import and_more, key_values
from penstock.cli.options import argument, flag, option
from penstock.cli.output import Marked, UsageError
from penstock.cli.session import DRY_RUN, Session, command

if TYPE_CHECKING:
    from penstock.client.admin import ConfigEntry, ConfigOp, ConfigResource
    from penstock.client.admin.admin import Admin

app = new_group("Settings of topics, brokers, loggers, groups and clients' metrics.")

DEFAULT = "default"
"""The name that stands for all brokers, instead of an id."""


class Kind(StrEnum):
    """The kinds of resources that have settings."""

    TOPIC = "topic"
    BROKER = "broker"
    BROKER_LOGGER = "broker-logger"
    GROUP = "group"
    CLIENT_METRICS = "client-metrics"


KIND_ARGUMENT = argument("KIND", help="The kind of resource.")


def _complete_names(ctx: typer.Context, incomplete: str) -> list[str]:
    kind = ctx.params.get("kind")
    if kind == Kind.TOPIC:
        return complete.topics(ctx, incomplete)
    return complete.groups(ctx, incomplete) if kind == Kind.GROUP else []


@command(app, "list")
def list_resources(
    session: Session,
    kind: list[Kind] | None = argument("KIND", default=None, help="Only these kinds."),
) -> None:
    """List resources that can have settings of their own."""
    from penstock.client.admin import ConfigResourceType

    with session.admin() as admin:
        resources = admin.list_config_resources(
            [ConfigResourceType[chosen_kind.name] for chosen_kind in kind or []]
        )
    session.out.table(
        ["Kind", "Name"],
        [(_kind_name(resource), resource.name or DEFAULT) for resource in resources],
        empty="no resource has settings of its own",
    )


@command(app, "describe")
def describe(
    session: Session,
    kind: Kind = KIND_ARGUMENT,
    names: list[str] | None = argument(
        "NAME",
        default=None,
        help="Names or broker ids; `default` for the defaults of all brokers. Default: all.",
        autocompletion=_complete_names,
    ),
    every: bool = flag(
        "--all", help="All settings, not only those that were set for the resource."
    ),
    key: list[str] | None = option("--key", "-k", help="Only this setting; may be repeated."),
    synonyms: bool = flag("--synonyms", help="The other sources of the value."),
    documentation: bool = flag("--documentation", help="The documentation of each setting."),
) -> None:
    """Show settings, and where their values come from."""
    with session.admin() as admin:
        resources = _resources(admin, kind, names)
        configs = admin.describe_configs(
            resources,
            names=key or None,
            include_synonyms=synonyms or session.out.as_json,
            include_documentation=documentation,
        )
    shown = {
        resource: [
            setting
            for _, setting in sorted(settings.items())
            if every or key or documentation or setting.is_dynamic or _is_own(resource, setting)
        ]
        for resource, settings in configs.items()
    }
    columns = ["Kind", "Name", "Setting", "Value", "Source", "Read only"]
    columns += ["Synonyms"] if synonyms else []
    columns += ["Documentation"] if documentation else []
    rows = []
    for resource, entries in shown.items():
        for entry in entries:
            value: object = Marked("(hidden)", "dim") if entry.is_sensitive else entry.value
            row = [_kind_name(resource), resource.name or DEFAULT, entry.name, value]
            row += [_source(entry), entry.is_read_only]
            row += (
                [[f"{synonym.name}={synonym.value}" for synonym in entry.synonyms]]
                if synonyms
                else []
            )
            rows.append([*row, entry.documentation] if documentation else row)
    session.out.table(
        columns,
        rows,
        document=[
            {"kind": _kind_name(resource), "name": resource.name or DEFAULT, "settings": entries}
            for resource, entries in shown.items()
        ],
        empty="nothing was set here: --all shows every setting",
    )


@command(app, "alter")
def alter(
    session: Session,
    kind: Kind = KIND_ARGUMENT,
    names: list[str] = argument(
        "NAME",
        help="Names or broker ids; `default` for the defaults of all brokers.",
        autocompletion=_complete_names,
    ),
    to_set: list[str] | None = option(
        "--set", "-s", metavar="KEY=VALUE", help="Set a value; may be repeated."
    ),
    to_delete: list[str] | None = option(
        "--delete", "-d", metavar="KEY", help="Reset to the default; may be repeated."
    ),
    append: list[str] | None = option(
        "--append", metavar="KEY=VALUE", help="Add to a setting that is a list."
    ),
    subtract: list[str] | None = option(
        "--subtract", metavar="KEY=VALUE", help="Remove from a setting that is a list."
    ),
    file: Path | None = option(
        "--file", metavar="PROPERTIES", help="Set all properties of a file. - is stdin."
    ),
    dry_run: bool = DRY_RUN,
) -> None:
    """Change settings. Others stay unchanged."""
    from penstock.client.admin import ConfigResource, ConfigResourceType

    from_file = {} if file is None else _properties(file)
    ops = changes(from_file, to_set or [], to_delete or [], append or [], subtract or [])
    if not ops:
        raise UsageError("name what to change: --set, --delete, --append, --subtract or --file")
    resources = [
        ConfigResource(ConfigResourceType[kind.name], _resource_name(kind, name)) for name in names
    ]
    with session.admin() as admin:
        admin.incremental_alter_configs(dict.fromkeys(resources, ops), validate_only=dry_run)
    what = "could be changed" if dry_run else "changed"
    session.out.done(
        f"{what}: {kind} {and_more(names)}: {', '.join(op.name for op in ops)}",
        [
            {
                "kind": kind,
                "name": name,
                "altered": not dry_run,
                "settings": [op.name for op in ops],
            }
            for name in names
        ],
    )


def changes(
    from_file: dict[str, str],
    to_set: list[str],
    to_delete: list[str],
    append: list[str],
    subtract: list[str],
) -> "list[ConfigOp]":
    """Returns the operations of the options. Raises UsageError if two change the same setting."""
    from penstock.client.admin import ConfigOp, ConfigOpType

    ops = [ConfigOp(key, value) for key, value in (from_file | key_values(to_set, "--set")).items()]
    ops += [ConfigOp(key, None, ConfigOpType.DELETE) for key in dict.fromkeys(to_delete)]
    for changes_of_kind, option_name, kind in (
        (append, "--append", ConfigOpType.APPEND),
        (subtract, "--subtract", ConfigOpType.SUBTRACT),
    ):
        values: dict[str, list[str]] = {}
        for change in changes_of_kind:
            for key, value in key_values([change], option_name).items():
                values.setdefault(key, []).append(value)
        ops += [ConfigOp(key, ",".join(items), kind) for key, items in values.items()]
    keys = [op.name for op in ops]
    twice = [key for key in dict.fromkeys(keys) if keys.count(key) > 1]
    if twice:
        raise UsageError(
            f"{twice[0]} is changed in two ways", remedy="choose one, or run the command twice"
        )
    return ops


def _properties(path: Path) -> dict[str, str]:
    from penstock.core.java_properties import PropertiesSyntaxError, parse_properties

    try:
        properties = parse_properties(read_text(path))
    except PropertiesSyntaxError as error:
        raise UsageError(f"{path}:{error.line}: {error}") from None
    return {name: prop.value for name, prop in properties.items()}


def _resources(admin: "Admin", kind: Kind, names: list[str] | None) -> "list[ConfigResource]":
    from penstock.client.admin import ConfigResource, ConfigResourceType

    kind_of = ConfigResourceType[kind.name]
    if names:
        return [ConfigResource(kind_of, _resource_name(kind, name)) for name in names]
    if kind is Kind.TOPIC:
        names_of_kind = sorted(admin.list_topics())
    elif kind in (Kind.BROKER, Kind.BROKER_LOGGER):
        names_of_kind = [str(node.id) for node in admin.describe_cluster().nodes]
        names_of_kind += [""] if kind is Kind.BROKER else []
    else:
        names_of_kind = [resource.name for resource in admin.list_config_resources([kind_of])]
    return [ConfigResource(kind_of, name) for name in names_of_kind]


def _resource_name(kind: Kind, name: str) -> str:
    if kind is Kind.BROKER and name == DEFAULT:
        return ""
    if kind in (Kind.BROKER, Kind.BROKER_LOGGER) and not name.isdecimal():
        raise UsageError(
            f"'{name}' is not a broker", remedy="write its id, or `default` for all brokers"
        )
    return name


def _is_own(resource: "ConfigResource", entry: "ConfigEntry") -> bool:
    """Returns whether it is a setting of the defaults of all brokers, shown for these."""
    from penstock.client.admin import ConfigSource

    return not resource.name and entry.source is ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG


def _kind_name(resource: "ConfigResource") -> str:
    return resource.type.name.lower().replace("_", "-")


def _source(entry: "ConfigEntry") -> str:
    return entry.source.name.lower().removesuffix("_config").replace("_", "-")
