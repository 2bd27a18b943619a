"""`penstock dump-log`: shows the files of a log, like Kafka's DumpLogSegments.

Files are opened for reading only, so the directory of a running broker can be dumped.
"""

import os
import sys
from collections.abc import Iterable
from io import TextIOWrapper

import typer

from penstock.cli.dump.decoders import (
    Decoder,
    decode_consumer_offsets,
    decode_share_group_state,
    decode_transaction_state,
)
from penstock.cli.dump.indexes import IndexMode
from penstock.cli.dump.items import ERROR, PROBLEM
from penstock.cli.dump.paths import DumpOptions, FileItem, dump
from penstock.cli.dump.render import plain, to_json, to_text
from penstock.cli.dump.segment import SegmentOptions
from penstock.cli.options import argument, flag, option
from penstock.cli.output import escape

EXIT_PROBLEM = 1
EXIT_ERROR = 2
EXIT_BROKEN_PIPE = 128 + 13
"""The exit code of a program that SIGPIPE ended, as of other tools before a `head`."""

_COLOURS = {"name": "bright_black", "file": "bright_blue", "note": "yellow", "problem": "red"}


def dump_log(
    files: list[str] = argument(
        "FILE",
        help="Segments (.log), indexes (.index, .timeindex, .txnindex), producer snapshots "
        "(.snapshot), checkpoints, partition.metadata, meta.properties, .kafka_cleanshutdown, "
        "or a directory with such files.",
    ),
    deep_iteration: bool = flag("--deep-iteration", help="Show the records of each batch."),
    print_data_log: bool = flag(
        "--print-data-log",
        help="Show keys, values and headers of the records; implies --deep-iteration.",
    ),
    skip_record_metadata: bool = flag(
        "--skip-record-metadata", help="Leave out offset, timestamp and sizes of the records."
    ),
    max_bytes: int | None = option(
        "--max-bytes", min=0, help="Stop in a .log file after this number of bytes."
    ),
    index_sanity_check: bool = flag(
        "--index-sanity-check",
        help="Only check indexes as a broker does at start; show no entries.",
    ),
    verify_index_only: bool = flag(
        "--verify-index-only", help="Only check every index entry against the log; show no entries."
    ),
    offsets_decoder: bool = flag(
        "--offsets-decoder", help="Decode records of __consumer_offsets; implies --print-data-log."
    ),
    transaction_log_decoder: bool = flag(
        "--transaction-log-decoder",
        help="Decode records of __transaction_state; implies --print-data-log.",
    ),
    share_group_state_decoder: bool = flag(
        "--share-group-state-decoder",
        help="Decode records of __share_group_state; implies --print-data-log.",
    ),
    as_json: bool = flag(
        "--json",
        help="One JSON object per line. Keys and values that are not UTF-8 are given as "
        '{"base64": "..."}.',
    ),
) -> None:
    """Show the content of the files of a log. Nothing is changed.

    Exit code 1: something is wrong with the content of a file, and is shown where it was found.
    Exit code 2: a file could not be dumped at all.
    """
    decoder = _one_decoder(
        {
            "--offsets-decoder": (offsets_decoder, decode_consumer_offsets),
            "--transaction-log-decoder": (transaction_log_decoder, decode_transaction_state),
            "--share-group-state-decoder": (share_group_state_decoder, decode_share_group_state),
        }
    )
    with_data = print_data_log or decoder is not None
    segment = SegmentOptions(
        records=deep_iteration or with_data,
        data=with_data,
        metadata=not skip_record_metadata,
        max_bytes=max_bytes,
        decoder=decoder,
    )
    index = IndexMode.SHOW
    if index_sanity_check:
        index = IndexMode.SANITY
    elif verify_index_only:
        index = IndexMode.VERIFY
    try:
        code = _print_all(dump(files, DumpOptions(segment, index)), as_json=as_json)
        sys.stdout.flush()
    except OSError as failure:
        # The interpreter flushes once more at its end, which must not fail again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(failure, BrokenPipeError):
            raise typer.Exit(EXIT_BROKEN_PIPE) from None
        print(f"penstock dump-log: cannot write: {failure.strerror}", file=sys.stderr)
        code = EXIT_ERROR
    raise typer.Exit(code)


def _one_decoder(choices: dict[str, tuple[bool, Decoder]]) -> Decoder | None:
    chosen = [name for name, (is_chosen, _) in choices.items() if is_chosen]
    if len(chosen) > 1:
        raise typer.BadParameter(f"{' and '.join(chosen)} exclude each other")
    return choices[chosen[0]][1] if chosen else None


def _print_all(items: Iterable[FileItem], *, as_json: bool) -> int:
    if isinstance(sys.stdout, TextIOWrapper):
        # A key may have characters that the terminal's encoding lacks.
        sys.stdout.reconfigure(errors="backslashreplace")
    colour = sys.stdout.isatty() and "NO_COLOR" not in os.environ
    style = _coloured if colour else plain
    code = 0
    for path, item in items:
        if item.kind == ERROR:
            code = EXIT_ERROR
            reason = escape(str(item.fields["error"]))
            print(f"penstock dump-log: {escape(path)}: {reason}", file=sys.stderr)
            continue
        if item.kind == PROBLEM:
            code = max(code, EXIT_PROBLEM)
        line = to_json(path, item) if as_json else to_text(path, item, style)
        sys.stdout.write(line + "\n")
    return code


def _coloured(text: str, role: str) -> str:
    return typer.style(text, fg=_COLOURS[role])
