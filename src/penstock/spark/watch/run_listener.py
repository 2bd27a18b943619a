"""The base class of listeners of a run: lag, progress on the terminal, metrics."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.spark.progress import Batch, Progress
    from penstock.spark.sinks.port import WriteResult
    from penstock.spark.watch.report import BatchReport


class RunListener:
    """Does nothing: subclasses override the methods that they need.

    Called from several threads, one for each query and one for reports. An exception in `stored`
    stops the query, after the batch was stored.
    """

    def begins(self, query: str, at: "Progress") -> None:
        """A query is about to start, and resumes from these offsets."""

    def stored(self, query: str, batch: "Batch", applied: "WriteResult") -> None:
        """The sink has committed a batch."""

    def finished(self, report: "BatchReport") -> None:
        """Spark has finished a batch; called some time after `stored`."""
