"""The division of descriptors between files and connections (X5)."""

import pytest

from penstock.broker.descriptor_budget import divide_descriptors, raise_descriptor_limit


@pytest.mark.parametrize(
    ("limit", "files", "connections"),
    [(20_000, 9936, 9936), (1024, 448, 448), (256, 96, 96), (1 << 20, 32_765, 524_224)],
)
def test_half_is_reserved_for_files(limit: int, files: int, connections: int) -> None:
    assert divide_descriptors(limit) == (files, connections)


def test_the_limit_of_this_process() -> None:
    budget = raise_descriptor_limit()
    assert budget.files > 0
    assert budget.connections > 0
