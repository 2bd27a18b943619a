"""Generates the blocking clients from their asyncio sources.

    python tools/unasync.py            writes the generated files
    python tools/unasync.py --check    fails if one of them is not up to date

A source is asyncio code: `await` and `async` are removed and names are replaced. Two comments in a
source mark the few other differences:

    await asyncio.sleep(0)  # asyncio only
    # blocking only: self._loop_thread.close()

`# asyncio only` removes its line, the comment above it, and the block below it if the line ends
with a colon. `# blocking only:` is followed by a line of the blocking client. `CallerLoop` and
`LoopThread` hide the other differences: the first runs work on the caller's loop, the second on a
thread's.
"""

import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent
CLIENT = "src/penstock/client"

ASYNCIO_ONLY = "  # asyncio only"
BLOCKING_ONLY = re.compile(r"^( *)# blocking only: (.*)$", re.MULTILINE)

NAMES = {
    "AbstractAsyncContextManager": "AbstractContextManager",
    "AioExternalOffsets": "ExternalOffsets",
    "AioTransaction": "Transaction",
    "AsyncConnection": "Connection",
    "AsyncEngine": "Engine",
    "AsyncIterator": "Iterator",
    "AsyncReader": "Reader",
    "AsyncTransaction": "RootTransaction",
    "CallerLoop": "LoopThread",
    "TaskGuard": "ThreadGuard",
    "TimedEvent": "threading.Event",
    "__aenter__": "__enter__",
    "__aexit__": "__exit__",
    "__aiter__": "__iter__",
    "_caller_loop": "_loop_thread",
    "append_async": "append",
    "append_many_async": "append_many",
    "asynccontextmanager": "contextmanager",
    "attach_aio": "attach",
    "await_result": "refuse_awaitable",
    "caller_loop": "loop_thread",
}
"""Names that have a twin. A name of several modules has the same one in all of them."""


class Twin(NamedTuple):
    """An asyncio source, the file that is generated from it, and what else differs."""

    source: str
    target: str
    docstring: str
    """The module docstring of the generated file."""
    replacements: tuple[tuple[str, str], ...]
    """Text of the source, after names have been replaced, and what stands there instead."""


PRODUCER_DOCS = (
    (
        '"""Sends records to topics, on the event loop that it is started on.',
        '"""Sends records to topics. All methods may be called from any thread.',
    ),
    (
        """\
            future = producer.send("orders", b"value")  # the record is in a batch
            metadata = future  # the record is acknowledged
""",
        """\
            producer.send("orders", b"value", key=b"key").result()
""",
    ),
    (
        """\
batches are sent in the background. Close the
    producer with `with` or `close()`; one that is garbage collected open causes a
    ResourceWarning.
""",
        """\
batches are sent by a thread. Delivery
    callbacks and interceptors run on that thread: they must not block, and blocking calls of the
    producer raise IllegalStateError there. Close the producer with `with` or `close()`; one that is
    garbage collected open causes a ResourceWarning. When the interpreter ends, producers that are
    still open get five seconds to deliver their records.
""",
    ),
    (
        """\
is called when the
        record is acknowledged or has failed.
""",
        """\
is called on the
        producer's thread when the record is acknowledged or has failed.
""",
    ),
    (
        """\
        May be called twice.
""",
        """\
        In a callback it does not wait, and fails pending records. May be called twice.
""",
    ),
    (
        "its pending records may not be delivered",
        "its pending records are still delivered",
    ),
)

CONSUMER_DOCS = (
    (
        """\
    Records are fetched ahead in the background. Rebalance listeners and commit callbacks run within
    `poll` and may be coroutine functions. A consumer is for one task at a time; only `wakeup` may
    be called from other threads.""",
        """\
    Records are fetched ahead in the background, by a thread. Rebalance listeners and commit
    callbacks run within `poll`. A consumer is for one thread at a time; only `wakeup` may be called
    from other threads.""",
    ),
    (
        """\
                    connection = tx.connection()
                    connection.execute""",
        """\
                    tx.connection.execute""",
    ),
)

TWINS = (
    Twin(
        f"{CLIENT}/aio/producer.py",
        f"{CLIENT}/producer/producer.py",
        "The blocking producer: any thread calls `send`, a thread of the producer delivers.",
        (
            (
                "from penstock.client.aio.loop_thread import LoopThread, wait_for_batch",
                "from penstock.client.loop_thread import LoopThread\n"
                "from penstock.client.producer.at_exit import deliver_at_exit",
            ),
            ("LoopThread()", "LoopThread(f\"penstock-{settings['client_id']}\")"),
            ("wait_for_batch(result, remaining_s)", "result.wait(remaining_s)"),
            (
                'Callable[Concatenate["Producer", P], Coroutine[Any, Any, R]]',
                'Callable[Concatenate["Producer", P], R]',
            ),
            *PRODUCER_DOCS,
        ),
    ),
    Twin(
        f"{CLIENT}/aio/consumer.py",
        f"{CLIENT}/consumer/consumer.py",
        "The blocking consumer.",
        (
            (
                "from penstock.client.aio.loop_thread import LoopThread, threading.Event, "
                "refuse_awaitable",
                "import threading\nfrom penstock.client.loop_thread import LoopThread",
            ),
            ("    logger,\n", "    logger,\n    refuse_awaitable,\n"),
            (
                'Callable[Concatenate["Consumer", P], Coroutine[Any, Any, R]]',
                'Callable[Concatenate["Consumer", P], R]',
            ),
            ("LoopThread()", "LoopThread(f\"penstock-{settings['client_id'] or 'consumer'}\")"),
            ("self._loop_thread.post_threadsafe(self._ready.set)", "self._ready.set()"),
            ("sqlalchemy.ext.asyncio", "sqlalchemy"),
            ("external_offsets.aio import", "external_offsets.transaction import"),
            *CONSUMER_DOCS,
        ),
    ),
    Twin(
        f"{CLIENT}/external_offsets/aio.py",
        f"{CLIENT}/external_offsets/transaction.py",
        "Results and offsets in one database transaction, for blocking consumers.",
        (
            ("sqlalchemy.ext.asyncio", "sqlalchemy"),
            ("    def connection(self)", "    @property\n    def connection(self)"),
            ("self.connection()", "self.connection"),
        ),
    ),
)


def generate(twin: Twin) -> str:
    """Returns the text of the blocking twin, formatted."""
    source = without_asyncio_only((ROOT / twin.source).read_text())
    source = BLOCKING_ONLY.sub(r"\1\2", source)
    source = re.sub(r"\basync (?=(def|with|for)\b)|\bawait ", "", source)
    source = re.sub(r"\b\w+\b", lambda match: NAMES.get(match[0], match[0]), source)
    # SQLAlchemy: `connection.run_sync(function, argument)` is `function(connection, argument)`.
    source = re.sub(r"(self\._connection|connection)\.run_sync\(\s*([\w.]+)", r"\2(\1", source)
    for text, replacement in twin.replacements:
        if text not in source:
            raise SystemExit(f"{twin.source}: not found: {text}")
        source = source.replace(text, replacement)
    _, _, code = source.split('"""', 2)
    origin = f"Generated from {twin.source} by tools/unasync.py: edit that file."
    return _format(f'"""{twin.docstring}\n\n{origin}\n"""{code}', twin.target)


def without_asyncio_only(source: str) -> str:
    """Returns the source without the lines and blocks that are marked `# asyncio only`."""
    lines: list[str] = []
    block_indent: int | None = None
    for line in source.splitlines(keepends=True):
        indent = len(line) - len(line.lstrip())
        if block_indent is not None and (not line.strip() or indent > block_indent):
            continue
        block_indent = None
        if line.rstrip().endswith(ASYNCIO_ONLY):
            while lines and lines[-1].lstrip().startswith("#"):
                lines.pop()
            if line.rstrip().removesuffix(ASYNCIO_ONLY).endswith(":"):
                block_indent = indent
            continue
        lines.append(line)
    return "".join(lines)


def _format(source: str, target: str) -> str:
    """Sorts and removes imports, and formats, as `make lint` expects it."""
    ruff = [str(Path(sys.executable).parent / "ruff")]
    fix = ["check", "--fix", "--quiet", "--select=I,F401"]
    for command in (fix, ["format", "--quiet"]):
        source = subprocess.run(
            [*ruff, *command, f"--stdin-filename={target}", "-"],
            input=source,
            capture_output=True,
            text=True,
            check=True,
            cwd=ROOT,
        ).stdout
    return source


def stale_files() -> list[str]:
    """Returns the generated files that differ from what their sources give."""
    return [twin.target for twin in TWINS if (ROOT / twin.target).read_text() != generate(twin)]


def main() -> None:
    if "--check" in sys.argv:
        if files := stale_files():
            raise SystemExit(f"run tools/unasync.py: not up to date: {', '.join(files)}")
        return
    for twin in TWINS:
        (ROOT / twin.target).write_text(generate(twin))


if __name__ == "__main__":
    main()
