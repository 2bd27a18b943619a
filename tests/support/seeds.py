"""Seeds of random histories: a few run with every `make test`, the others with `make test-long`."""

import pytest
from _pytest.mark import ParameterSet


def seeds(count: int, *, always: int) -> list[ParameterSet]:
    """Returns the parameters 0 to `count` - 1; those from `always` on are marked `long`."""
    return [
        pytest.param(seed, marks=pytest.mark.long if seed >= always else ())
        for seed in range(count)
    ]
