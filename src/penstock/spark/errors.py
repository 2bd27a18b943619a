"""What the Spark part raises. Every message says what is wrong and what to do."""


class SparkPartError(Exception):
    """The base of all of them."""


class OptionError(SparkPartError, ValueError):
    """An option of the source or the sink is wrong, missing, or does not go with another."""


class DataLossError(SparkPartError):
    """Records between two offsets are gone, or the topic is another one than before."""


class MissingPartError(SparkPartError):
    """Java, or a Python package, is missing."""


class PipelineError(SparkPartError):
    """A pipeline cannot start, or must stop. Nothing of the batch at hand was stored."""


class FencedError(PipelineError):
    """Another driver has taken the pipeline over."""


class ProgressError(PipelineError):
    """What the sink has stored is neither the start nor the end of the batch at hand."""


class CheckpointLostError(PipelineError):
    """The pipeline keeps state, and its checkpoint is gone."""


class TooManyDeadLettersError(PipelineError):
    """More records cannot be read than the pipeline may leave out."""
