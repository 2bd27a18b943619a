"""Functions that steps name: `module:function`, or `path/to/file.py:function`."""

import importlib
import importlib.util
import sys
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from types import ModuleType
from typing import cast

from penstock.spark.errors import PipelineError
from penstock.spark.pipeline.model import StepFunction, StepSpec


def function_of(step: StepSpec, folder: Path) -> StepFunction:
    """The function of a step. Files, and modules that are not installed, are looked for in
    `folder`, which is that of the pipeline's file."""
    given = step.function
    if given is None:
        raise PipelineError(f"step {step.name} has no function")
    if not isinstance(given, str):
        return given
    place, _, name = given.rpartition(":")
    if not place or not name:
        raise PipelineError(
            f"step {step.name}: {given!r} names no function: write module:function, or "
            "path/to/file.py:function"
        )
    module = _from_file(step, folder / place) if place.endswith(".py") else _module(place, folder)
    found = getattr(module, name, None)
    if not callable(found):
        raise PipelineError(f"step {step.name}: there is no function {name} in {place}")
    return cast(StepFunction, found)


def _module(name: str, folder: Path) -> ModuleType:
    if str(folder) not in sys.path:
        sys.path.append(str(folder))
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise PipelineError(
            f"module {name} cannot be imported ({error}): install it, or put it next to the "
            f"pipeline's file, in {folder}"
        ) from error
    place = Path(module.__file__ or "")
    if place.is_relative_to(folder) and "site-packages" not in place.parts:
        _send_along(sys.modules[name.partition(".")[0]])
    return module


def _from_file(step: StepSpec, path: Path) -> ModuleType:
    if not path.is_file():
        raise PipelineError(f"step {step.name}: there is no file {path}")
    name = f"penstock_step_{path.stem}_{sha256(str(path.resolve()).encode()).hexdigest()[:8]}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise PipelineError(f"step {step.name}: {path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    _send_along(module)
    return module


def _send_along(module: ModuleType) -> None:
    """Executors cannot import it: what they need of it travels with the plan."""
    from pyspark.cloudpickle import register_pickle_by_value

    register: Callable[[ModuleType], None] = register_pickle_by_value
    register(module)
