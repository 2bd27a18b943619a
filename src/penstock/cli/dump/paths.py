"""Finds the files to dump, opens them for reading only, and passes each to its dump."""

import errno
import os
import stat
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from penstock.cli.dump.indexes import (
    IndexMode,
    dump_offset_index,
    dump_time_index,
    dump_txn_index,
)
from penstock.cli.dump.items import FILE, Item, error, note, problem
from penstock.cli.dump.names import KNOWN_NAMES, FileName, FileType, parse_name
from penstock.cli.dump.segment import SegmentOptions, dump_segment
from penstock.cli.dump.small_files import dump_small_file
from penstock.storage.disk import Descriptor, OsDisk, OsFile
from penstock.storage.file_names import LOG_SUFFIX, parse_partition_directory, segment_path
from penstock.storage.index.mapped_index import CorruptIndexError
from penstock.storage.index.offset_index import OffsetIndex
from penstock.storage.index.time_index import TimeIndex
from penstock.storage.index.transaction_index import TransactionIndex

_INDEX_DUMPS = {
    FileType.OFFSET_INDEX: dump_offset_index,
    FileType.TIME_INDEX: dump_time_index,
    FileType.TXN_INDEX: dump_txn_index,
}


class DumpOptions(NamedTuple):
    """Which parts of the files are shown."""

    segment: SegmentOptions
    index_mode: IndexMode = IndexMode.SHOW


DEFAULTS = DumpOptions(SegmentOptions())


class FileItem(NamedTuple):
    """An item and the path of its file."""

    path: str
    item: Item


def dump(paths: Iterable[str], options: DumpOptions = DEFAULTS) -> Iterator[FileItem]:
    """Yields the content of files; a directory stands for the files in it.

    Problems are items too, of the kind `problem` (in the content) or `error` (the file cannot be
    dumped). It raises nothing.
    """
    any_file = False
    argument = ""
    for argument in paths:
        for path in _files(argument):
            if isinstance(path, FileItem):
                yield path
                continue
            name = parse_name(os.path.basename(path))
            if name is None:
                yield FileItem(path, _unknown(path))
                continue
            if options.index_mode is not IndexMode.SHOW and not name.type.is_index:
                continue
            any_file = True
            for item in _dump_file(path, name, options):
                yield FileItem(path, item)
    if options.index_mode is not IndexMode.SHOW and not any_file:
        yield FileItem(argument, error("there is no .index, .timeindex or .txnindex file to check"))


def _unknown(path: str) -> Item:
    if not os.path.exists(path):
        return error(os.strerror(errno.ENOENT))
    return error(f"is not a file of a log; those are named {', '.join(KNOWN_NAMES)}")


def _files(path: str) -> Iterator[str | FileItem]:
    """Yields the path itself, or the files in the directory."""
    if not os.path.isdir(path):
        yield path
        return
    try:
        names = sorted(os.listdir(path))
    except OSError as failure:
        yield FileItem(path, _os_error(failure))
        return
    files = [name for name in names if parse_name(name) is not None]
    partitions = [
        name
        for name in names
        if parse_partition_directory(name) is not None and os.path.isdir(os.path.join(path, name))
    ]
    if partitions:
        yield FileItem(
            path,
            note(f"{len(partitions)} partition directories are in {path}: name one to dump it"),
        )
    elif not files:
        yield FileItem(path, error("is a directory without any file of a log"))
    for name in files:
        yield os.path.join(path, name)


def _dump_file(path: str, name: FileName, options: DumpOptions) -> Iterator[Item]:
    try:
        file = _open(path)
    except OSError as failure:
        yield _os_error(failure)
        return
    try:
        yield _heading(file.size(), name)
        yield from _content(path, name, file, options)
    except OSError as failure:
        yield _os_error(failure)
    finally:
        file.close()


def _heading(size: int, name: FileName) -> Item:
    fields: dict[str, str | int] = {"type": name.type.value, "size": size}
    if name.type is FileType.LOG:
        fields["startingOffset"] = name.base_offset
    elif name.type is FileType.SNAPSHOT:
        fields["offset"] = name.base_offset
    return Item(FILE, fields)


def _content(path: str, name: FileName, file: OsFile, options: DumpOptions) -> Iterator[Item]:
    if name.type is FileType.LOG:
        yield from dump_segment(file, name.base_offset, options.segment)
    elif not name.type.is_index:
        yield from dump_small_file(name.type, file.read_at(0, file.size()), path)
    elif options.index_mode is IndexMode.SANITY:
        yield from _check_sanity(path, name)
    else:
        log = _log_beside(path, name)
        try:
            yield from _INDEX_DUMPS[name.type](file, name.base_offset, log, options.index_mode)
        finally:
            if log is not None:
                log.close()


def _check_sanity(path: str, name: FileName) -> Iterator[Item]:
    """Runs the check that decides when a broker starts whether an index is rebuilt."""
    disk = _ReadOnlyDisk()
    index: OffsetIndex | TimeIndex | TransactionIndex
    if name.type is FileType.OFFSET_INDEX:
        index = OffsetIndex(disk, path, name.base_offset, 0, writable=False)
    elif name.type is FileType.TIME_INDEX:
        index = TimeIndex(disk, path, name.base_offset, 0, writable=False)
    else:
        index = TransactionIndex(disk, path, name.base_offset)
    try:
        index.sanity_check()
    except CorruptIndexError as failure:
        yield problem(f"failed the sanity check: {failure}")
    else:
        yield note("passed the sanity check")
    finally:
        if isinstance(index, TransactionIndex):
            index.close()


def _log_beside(path: str, name: FileName) -> OsFile | None:
    """Opens the log file of an index: with the same suffix if it exists, else without."""
    directory = os.path.dirname(path) or "."
    for suffix in (name.suffix, ""):
        try:
            return _open(segment_path(directory, name.base_offset, LOG_SUFFIX, suffix))
        except FileNotFoundError:
            continue
    return None


def _open(path: str) -> OsFile:
    # Without O_NONBLOCK a named pipe would wait here for a writer.
    descriptor = Descriptor(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK))
    if not stat.S_ISREG(os.fstat(descriptor.fd).st_mode):
        raise OSError(None, "Not a regular file")
    return OsFile(descriptor)


class _ReadOnlyDisk(OsDisk):
    def open(self, path: str, *, create: bool = False) -> OsFile:
        return _open(path)


def _os_error(failure: OSError) -> Item:
    return error(failure.strerror or str(failure))
