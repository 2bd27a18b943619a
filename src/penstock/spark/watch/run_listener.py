"""Who watches a run: lag, progress on the terminal and metrics are listeners."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.spark.progress import Batch, Progress
    from penstock.spark.sinks.port import WriteResult
    from penstock.spark.watch.report import BatchReport


class RunListener:
    """Does nothing: override what is of interest. Called from several threads, one for a query
    and one for reports; what it raises in `stored` stops the query, after the batch is stored."""

    def begins(self, query: str, at: "Progress") -> None:
        """A query is about to start, and goes on from here."""

    def stored(self, query: str, batch: "Batch", applied: "WriteResult") -> None:
        """The sink has taken a batch, for good."""

    def finished(self, report: "BatchReport") -> None:
        """Spark is done with a batch; a while after `stored`."""
