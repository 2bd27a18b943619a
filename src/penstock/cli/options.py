"""Declares the options and arguments of commands, as the defaults of a function's parameters.

    def list_topics(session: Session, internal: bool = flag("--internal", help="…")) -> None:

A declaration that several commands share is a constant. The keyword arguments are those of
`typer.Option` and `typer.Argument`.
"""

from dataclasses import field
from typing import Any

import typer

OPTION = "option"
"""The key of a field's declaration in its metadata."""


def option(*names: str, default: object = None, **details: Any) -> Any:
    """Declares an option with a value; help shows its default unless that is None."""
    return typer.Option(default, *names, show_default=default is not None, **details)


def flag(*names: str, **details: Any) -> Any:
    """Declares an option without a value: True if it is given."""
    return typer.Option(False, *names, **details)


def argument(metavar: str, *, default: object = ..., **details: Any) -> Any:
    """Declares an argument, which is required unless it has a default."""
    return typer.Argument(default, metavar=metavar, show_default=False, **details)


def option_field(declaration: Any) -> Any:
    """Declares a field of a dataclass of options; a command takes all of them as one parameter."""
    return field(default=declaration.default, metadata={OPTION: declaration})
