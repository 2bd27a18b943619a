"""The examples of `docs/testing.md` work."""

import re
from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

PAGE = Path(__file__).resolve().parents[2] / "docs" / "testing.md"


def test_all_examples(pytester: pytest.Pytester) -> None:
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    for number, block in enumerate(blocks):
        (pytester.path / f"test_{number}.py").write_text(block)
    result = pytester.runpytest_subprocess("-p", "no:cacheprovider", "--strict-markers")
    tests = sum(len(re.findall(r"^ *def test_", block, re.MULTILINE)) for block in blocks)
    result.assert_outcomes(passed=tests)
