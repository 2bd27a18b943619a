"""Functions that a pipeline's file names."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.spark.errors import PipelineError
from penstock.spark.pipeline.model import StepSpec
from penstock.spark.pipeline.step_functions import function_of


@pytest.fixture(autouse=True)
def modules() -> Iterator[None]:
    path, loaded = list(sys.path), set(sys.modules)
    yield
    sys.path[:] = path
    for name in set(sys.modules) - loaded:
        if name.startswith(("penstock_step_", "my_steps")):
            del sys.modules[name]


def step(function: str) -> StepSpec:
    return StepSpec(name="clean", function=function)


def test_a_function_in_a_file_next_to_the_pipeline(tmp_path: Path) -> None:
    (tmp_path / "steps.py").write_text("def clean(views):\n    return 'cleaned'\n")
    assert str(function_of(step("steps.py:clean"), tmp_path)({})) == "cleaned"
    assert function_of(step("steps.py:clean"), tmp_path) is function_of(
        step("steps.py:clean"), tmp_path
    )


def test_a_function_in_a_module_next_to_the_pipeline(tmp_path: Path) -> None:
    (tmp_path / "my_steps_module.py").write_text("def clean(views):\n    return 'cleaned'\n")
    assert str(function_of(step("my_steps_module:clean"), tmp_path)({})) == "cleaned"


@pytest.mark.parametrize(
    ("function", "said"),
    [
        ("clean", "module:function"),
        (":clean", "module:function"),
        ("no_such_module_at_all:clean", "cannot be imported"),
        ("missing.py:clean", "there is no file"),
        ("steps.py:other", "there is no function other"),
        ("steps.py:VALUE", "there is no function VALUE"),
    ],
)
def test_what_cannot_be_found_is_said(tmp_path: Path, function: str, said: str) -> None:
    (tmp_path / "steps.py").write_text("VALUE = 1\n")
    with pytest.raises(PipelineError, match=said):
        function_of(step(function), tmp_path)
