"""The examples of `docs/testing.md` work."""

import re
from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

PAGE = Path(__file__).resolve().parents[2] / "docs" / "testing.md"
BUG = "### A bug that only a cluster shows\n"
NAIVE, CORRECT = '"acks": "1"', '"acks": "all"'


def python_blocks(text: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", text, re.DOTALL)


def run(pytester: pytest.Pytester, *arguments: str) -> pytest.RunResult:
    return pytester.runpytest_subprocess("-p", "no:cacheprovider", "--strict-markers", *arguments)


def test_all_examples(pytester: pytest.Pytester) -> None:
    before, _, after = PAGE.read_text().partition(BUG)
    blocks = python_blocks(before) + python_blocks(after)[1:]
    for number, block in enumerate(blocks):
        (pytester.path / f"test_{number}.py").write_text(block)
    result = run(pytester)
    tests = sum(len(re.findall(r"^ *def test_", block, re.MULTILINE)) for block in blocks)
    result.assert_outcomes(passed=tests)


@pytest.mark.long
def test_the_example_finds_a_bug(pytester: pytest.Pytester) -> None:
    """It fails as the page says, and passes if the program is corrected."""
    [program, *_] = python_blocks(PAGE.read_text().partition(BUG)[2])
    assert NAIVE in program
    (pytester.path / "test_naive.py").write_text(program)
    (pytester.path / "test_correct.py").write_text(program.replace(NAIVE, CORRECT))
    result = run(pytester)
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(
        ["*assert shop.confirmed <= stored", "*AssertionError: assert {*} <= {b'first'}"]
    )
    result.stdout.fnmatch_lines(["FAILED test_naive.py::test_no_confirmed_order_is_lost*"])
