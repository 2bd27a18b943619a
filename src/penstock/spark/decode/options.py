"""The options of a source: those of its format, and those of the data source that reads topics."""

from penstock.spark.decode.formats.registry import format_of
from penstock.spark.errors import OptionError
from penstock.spark.pipeline.model import SourceSpec


def format_options(spec: SourceSpec) -> dict[str, str]:
    """Returns the options of the source's format, with defaults; those without either are absent.

    Raises `OptionError` for a value that the format does not accept.
    """
    options: dict[str, str] = {}
    for name, option in format_of(spec).options.items():
        value = spec.options.get(name)
        if value is None:
            if option.default is not None:
                options[name] = option.default
            continue
        text = value.lower() if option.values else value
        broken_rule = option.check(text)
        if option.values and text not in option.values:
            broken_rule = f"it must be one of {', '.join(option.values)}"
        if broken_rule is not None:
            raise OptionError(f"source {spec.name}: option {name} is {value!r}: {broken_rule}")
        options[name] = text
    return options


def source_options(spec: SourceSpec) -> dict[str, str]:
    """Returns the options that are not of the format: the data source interprets them."""
    format_names = format_of(spec).options
    return {name: value for name, value in spec.options.items() if name not in format_names}
