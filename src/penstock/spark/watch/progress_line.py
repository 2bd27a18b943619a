"""The progress line of a running pipeline: records, lag and duration of the last batch."""

import os
import sys
from datetime import datetime
from typing import TextIO

from penstock.spark.watch.report import BatchReport
from penstock.spark.watch.run_listener import RunListener

_CLEAR = "\r\x1b[K"
_DEFAULT_WIDTH = 80


def line_of(report: BatchReport, width: int | None = None) -> str:
    """Returns the line of a finished batch; drops the least important parts if it is too wide."""
    parts = {
        "query": report.query,
        "batch": f"batch {report.batch_id}",
        "records": f"{report.records:,} records",
        "rate": f"{report.records_per_second:,.0f}/s",
        "lag": f"lag {report.lag:,}",
        "time": f"{report.duration_ms:,} ms",
    }
    shorter: dict[str, str] = {"state": "", "batch": "", "records": ""}
    if report.watermark is not None:
        at = datetime.fromisoformat(report.watermark)
        parts["watermark"] = f"watermark {at:%Y-%m-%d %H:%M:%S}"
        shorter["watermark"] = f"watermark {at:%H:%M:%S}"
    if report.state_rows:
        parts["state"] = f"state {report.state_rows:,} rows"
    if report.late_rows:
        parts["late"] = f"{report.late_rows:,} late"
    for name, text in shorter.items():
        if width is None or len("  ".join(parts.values())) <= width:
            break
        if text:
            parts[name] = text
        else:
            parts.pop(name, None)
    return "  ".join(parts.values())[:width]


class ProgressLine(RunListener):
    """Prints one line that is overwritten; without a terminal, a line for each non-empty batch."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = sys.stderr if stream is None else stream
        self._on_terminal = self._stream.isatty()
        self._shown = False

    def finished(self, report: BatchReport) -> None:
        if self._on_terminal:
            # A line that the terminal wraps could not be overwritten.
            line = line_of(report, _width(self._stream) - 1)
            print(_CLEAR + line, end="", file=self._stream, flush=True)
            self._shown = True
        elif report.records:
            print(line_of(report), file=self._stream, flush=True)

    def close(self) -> None:
        """Ends the line, so that later output does not overwrite it."""
        if self._shown:
            print(file=self._stream, flush=True)
            self._shown = False


def _width(terminal: TextIO) -> int:
    try:
        return os.get_terminal_size(terminal.fileno()).columns or _DEFAULT_WIDTH
    except OSError:
        return _DEFAULT_WIDTH
