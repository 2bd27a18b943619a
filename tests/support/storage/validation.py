"""Validation of an append as `Log` does it, without a log."""

from penstock.core.buffers import Buffer
from penstock.records.append_policy import AppendOrigin, AppendPolicy
from penstock.records.validate import Append, Assigned, assign_plain, validate_any


def validate_and_assign(
    buffer: Buffer,
    *,
    next_offset: int,
    leader_epoch: int,
    now_ms: int,
    policy: AppendPolicy,
    origin: AppendOrigin = AppendOrigin.CLIENT,
) -> Assigned:
    """Validates and assigns on the fast path if possible, or else on the normal path."""
    if origin is AppendOrigin.CLIENT and policy.is_plain:
        header = assign_plain(buffer, next_offset, leader_epoch, now_ms, policy)
        if header is not None:
            return Assigned(buffer, [header])
    return validate_any(buffer, Append(next_offset, leader_epoch, now_ms, policy, origin))


def max_timestamp_of(assigned: Assigned) -> int:
    return max(header.max_timestamp for header in assigned.headers)


def offset_of_max_timestamp(assigned: Assigned) -> int:
    """Returns the last offset of the first batch with the largest timestamp; -1 without any."""
    latest = max(assigned.headers, key=lambda header: header.max_timestamp)
    return -1 if latest.max_timestamp == -1 else latest.last_offset
