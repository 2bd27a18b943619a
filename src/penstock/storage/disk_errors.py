"""Errors of a disk that has no room, or no descriptor, left: the disk is not broken.

The operation that met such an error is refused, and the next one may succeed. Any other `OSError`
means that the content of the disk is unknown. After a failed sync every error counts as such: the
kernel may have dropped the data that it could not write.
"""

import errno
from collections.abc import Mapping
from typing import Final

REMEDIES: Final[Mapping[int, str]] = {
    errno.ENOSPC: "free space in {directory}, or lower retention.bytes or retention.ms of topics",
    errno.EDQUOT: "raise the quota of {directory}, or lower retention.bytes or retention.ms of "
    "topics",
    errno.EMFILE: "raise the limit of open files (ulimit -n, LimitNOFILE=)",
    errno.ENFILE: "raise the system's limit of open files (fs.file-max)",
    errno.ENOMEM: "free memory, or raise vm.max_map_count",
}
"""What to do about each of these errors."""


class TornWriteError(OSError):
    """A write failed, and the bytes that it left could not be removed: the file is damaged."""


class NothingWrittenError(OSError):
    """An append failed before it wrote anything: there is nothing to remove."""


def is_lack_of_room(error: BaseException | None) -> bool:
    """Returns whether the error means a lack of space or descriptors, not a broken disk."""
    return (
        isinstance(error, OSError)
        and error.errno in REMEDIES
        and not isinstance(error, TornWriteError)
    )


def remedy_for(error: OSError, directory: str) -> str:
    """Returns what to do about an error that `is_lack_of_room`."""
    return REMEDIES[error.errno or 0].format(directory=directory)
