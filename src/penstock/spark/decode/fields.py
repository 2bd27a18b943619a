"""The fields of a source, and what is wrong with their description. Works without Spark."""

from dataclasses import replace

from penstock.spark.decode.datatypes import Field
from penstock.spark.decode.formats.registry import format_of
from penstock.spark.errors import COLUMN_PREFIX, OptionError
from penstock.spark.pipeline.model import SourceSpec
from penstock.spark.pipeline.nearest import suggestion

ORIGIN_COLUMNS = (
    "_key", "_topic", "_partition", "_offset", "_timestamp", "_headers", "_error",
)  # fmt: skip
"""Columns that a decoded view has besides its fields."""
_KEYS = ("schema", "schema_file", "message")


def typed_fields(spec: SourceSpec) -> tuple[Field, ...]:
    """Returns the fields of a source; those in `required` or NOT NULL have `is_required` set.

    Raises `OptionError` that says what is wrong with the schema or with `required`.
    """
    for message in misplaced_keys(spec).values():
        raise OptionError(f"source {spec.name}: {message}")
    fields = format_of(spec).read_fields(spec)
    for field in fields:
        if field.name.lower() in ORIGIN_COLUMNS:
            raise OptionError(
                f"source {spec.name}: a field may not be named {field.name}, because that column "
                "says where a record came from",
                remedy="rename the field",
            )
        if field.name.lower().startswith(COLUMN_PREFIX):
            raise OptionError(
                f"source {spec.name}: the field {field.name} has a name that is reserved for "
                "Penstock",
                remedy="rename the field",
            )
    names = [field.name for field in fields]
    for name in spec.required:
        if name not in names:
            raise OptionError(
                f"source {spec.name}: the required field {name} is not in the schema"
                f"{suggestion(name, names)}"
            )
    return tuple(
        replace(field, is_required=field.is_required or field.name in spec.required)
        for field in fields
    )


def misplaced_keys(spec: SourceSpec) -> dict[str, str]:
    """Returns, for each key of the source that its format does not use, the reason and a remedy."""
    used = format_of(spec).keys
    uses = f"which needs {' and '.join(used)}" if used else "which needs no schema"
    return {
        key: f"{key} does not go with the format {spec.format}, {uses}: leave {key} out"
        for key in _KEYS
        if getattr(spec, key) is not None and key not in used
    }
