"""The exceptions of `penstock.spark`. Every message says what is wrong and what to do."""

import re

from penstock.core.errors import StructuredError, nested_text

_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")

COLUMN_PREFIX = "__penstock_"
"""The start of the names of columns that Penstock adds; no other column may have such a name."""


def printable(text: str) -> str:
    """Returns text from records or servers in one line, with control characters as escapes.

    Otherwise it could add lines to a log, or send commands to a terminal.
    """
    return _UNPRINTABLE.sub(lambda match: ascii(match[0])[1:-1], text)


class SparkPartError(StructuredError):
    """The base class of all of them."""

    @property
    def message(self) -> str:
        return nested_text(self)  # names in backticks are those of options, in any interface


class OptionError(SparkPartError, ValueError):
    """An option of the source or the sink is wrong, missing, or conflicts with another one."""


class DataLossError(SparkPartError):
    """Records between two offsets no longer exist, or the topic was created again."""


class MissingPartError(SparkPartError):
    """Java, or a Python package, is missing."""


class PipelineError(SparkPartError):
    """A pipeline cannot start, or must stop. Nothing of the current batch was stored."""


class FencedError(PipelineError):
    """Another driver has taken the pipeline over."""


class ProgressError(PipelineError):
    """The stored offsets are neither the start nor the end of the current batch."""


class CheckpointLostError(PipelineError):
    """The pipeline keeps state, and its checkpoint is missing."""


class TooManyDeadLettersError(PipelineError):
    """More records of a batch are unreadable than the pipeline allows."""
