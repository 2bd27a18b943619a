"""Step functions that a pipeline's file names."""

import json
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark import cloudpickle

from penstock.spark.errors import PipelineError
from penstock.spark.pipeline.model import StepSpec
from penstock.spark.run.step_functions import function_of


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


def test_functions_that_executors_cannot_import_are_pickled(tmp_path: Path) -> None:
    """A package next to the pipeline or a file is pickled; installed modules are not."""
    (tmp_path / "my_steps_package").mkdir()
    (tmp_path / "my_steps_package" / "__init__.py").write_text("")
    (tmp_path / "my_steps_package" / "words.py").write_text("WORD = 'done'\n")
    text = "from my_steps_package import words\ndef clean(views):\n    return words.WORD\n"
    (tmp_path / "my_steps_package" / "steps.py").write_text(text)
    pickled: Callable[[object], bytes] = cloudpickle.dumps
    data = pickled(function_of(step("my_steps_package.steps:clean"), tmp_path))
    command = [sys.executable, "-c", "import pickle, sys; print(pickle.load(sys.stdin.buffer)({}))"]
    done = subprocess.run(command, input=data, cwd="/", capture_output=True, check=False)
    assert done.stdout.strip() == b"done", done.stderr.decode()
    installed = function_of(step("json:dumps"), tmp_path)
    assert pickle.loads(pickled(installed)) is json.dumps


@pytest.mark.parametrize(
    ("function", "message"),
    [
        ("clean", "module:function"),
        (":clean", "module:function"),
        ("no_such_module_at_all:clean", "cannot be imported"),
        ("missing.py:clean", "there is no file"),
        ("steps.py:other", "there is no function other"),
        ("steps.py:VALUE", "there is no function VALUE"),
    ],
)
def test_the_error_of_a_missing_function_has_the_reason(
    tmp_path: Path, function: str, message: str
) -> None:
    (tmp_path / "steps.py").write_text("VALUE = 1\n")
    with pytest.raises(PipelineError, match=message):
        function_of(step(function), tmp_path)


def test_a_file_that_fails_is_read_again_when_it_was_corrected(tmp_path: Path) -> None:
    file = tmp_path / "steps.py"
    file.write_text("1 / 0\n")
    with pytest.raises(ZeroDivisionError):
        function_of(step("steps.py:clean"), tmp_path)
    file.write_text("def clean(views):\n    return 'cleaned'\n")
    assert str(function_of(step("steps.py:clean"), tmp_path)({})) == "cleaned"
