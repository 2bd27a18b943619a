"""The line that a running pipeline shows: what came in, how far behind it is, how long it takes."""

import sys
from typing import TextIO

from penstock.spark.watch.report import BatchReport
from penstock.spark.watch.watching import RunListener

_CLEAR = "\r\x1b[K"


def line_of(report: BatchReport) -> str:
    """One finished batch for a person."""
    parts = [
        f"{report.query}  batch {report.batch_id}",
        f"{report.records:,} records",
        f"{report.records_per_second:,.0f}/s",
        f"lag {report.lag:,}",
        f"{report.duration_ms:,} ms",
    ]
    if report.watermark is not None:
        parts.append(f"watermark {report.watermark}")
    if report.state_rows:
        parts.append(f"state {report.state_rows:,} rows")
    if report.late_rows:
        parts.append(f"{report.late_rows:,} late")
    return "  ".join(parts)


class ProgressLine(RunListener):
    """On a terminal one line that is written over; elsewhere a line for each batch that read."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = sys.stderr if stream is None else stream
        self._on_terminal = self._stream.isatty()
        self._shown = False

    def finished(self, report: BatchReport) -> None:
        if self._on_terminal:
            print(_CLEAR + line_of(report), end="", file=self._stream, flush=True)
            self._shown = True
        elif report.records:
            print(line_of(report), file=self._stream, flush=True)

    def close(self) -> None:
        """Leave the last line where it is."""
        if self._shown:
            print(file=self._stream, flush=True)
            self._shown = False
