"""Mutated frames for the fuzzer: requests of every API, with values or bytes changed."""

import struct
from random import Random
from typing import cast

from penstock.broker.handlers.table import CLUSTER_APIS, HANDLERS
from penstock.protocol.api import api
from penstock.protocol.frames import encode_request
from tests.support.protocol.hostile import make_plausible, versions_of
from tests.support.protocol.message_samples import random_message

_LENGTHS = (-1, 0, 1, 9, 2**20, 2**31 - 1, -(2**31))
_LENGTH = struct.Struct(">i")


def corpus(rng: Random, size: int, *, between_brokers: bool) -> list[bytes]:
    """Returns valid frames, at least one of each API and version, with any values in them.

    They are the requests of brokers to each other, or those of clients.
    """
    versions = versions_of(CLUSTER_APIS if between_brokers else HANDLERS.keys() - CLUSTER_APIS)
    frames: list[bytes] = []
    while len(frames) < size:
        key, version = versions[len(frames) % len(versions)]
        message = random_message(api(key).request, version, rng)
        make_plausible(message, version, rng)
        parts = encode_request(message, version, len(frames), "fuzz")
        frames.append(b"".join(cast("list[bytes]", parts)))
    return frames


def mutate(frames: list[bytes], rng: Random) -> bytes:
    """Returns one of the frames, in most cases with some bytes changed."""
    data = bytearray(rng.choice(frames))
    for _ in range(rng.choice((0, 1, 1, 2))):
        # The key and the version stay in most cases: a frame without a handler is refused early.
        if len(data) < 9:
            break
        at = rng.randrange(0 if rng.random() < 0.05 else 8, len(data))
        choice = rng.random()
        if choice < 0.7:
            data[at] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, data[at] ^ 1 << rng.randrange(8)))
        elif choice < 0.8:
            del data[at : at + rng.choice((1, 2, 4, 8, 40))]
        elif choice < 0.9:
            other = rng.choice(frames)
            cut = rng.randrange(len(other))
            data[at:at] = other[cut : cut + rng.choice((1, 2, 4, 16, 200))]
        else:
            data[at : at + 4] = rng.choice((b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\0\0\0\0"))
    if len(data) < 4:
        return bytes(data)
    is_damaged = rng.random() < 0.02
    _LENGTH.pack_into(data, 0, rng.choice(_LENGTHS) if is_damaged else len(data) - 4)
    return bytes(data)
