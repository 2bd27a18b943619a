"""The Python functions of steps: `module:function`, or `path/to/file.py:function`."""

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


def function_of(step: StepSpec, directory: Path) -> StepFunction:
    """Returns the function of a step.

    Files, and modules that are not installed, are searched in `directory`, which is the directory
    of the pipeline's file.
    """
    reference = step.function
    if reference is None:
        raise PipelineError(f"step {step.name} has no function")
    if not isinstance(reference, str):
        return reference
    location, _, name = reference.rpartition(":")
    if not location or not name:
        raise PipelineError(
            f"step {step.name}: {reference!r} names no function",
            remedy="write module:function, or path/to/file.py:function",
        )
    if location.endswith(".py"):
        module = _load_file(step, directory / location)
    else:
        module = _import_module(location, directory)
    function = getattr(module, name, None)
    if not callable(function):
        raise PipelineError(f"step {step.name}: there is no function {name} in {location}")
    return cast(StepFunction, function)


def _import_module(name: str, directory: Path) -> ModuleType:
    if str(directory) not in sys.path:
        sys.path.append(str(directory))
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise PipelineError(
            f"module {name} cannot be imported ({error})",
            remedy=f"install it, or put it next to the pipeline's file, in {directory}",
        ) from error
    path = Path(module.__file__ or "")
    if path.is_relative_to(directory) and "site-packages" not in path.parts:
        _pickle_by_value(sys.modules[name.partition(".")[0]])
    return module


def _load_file(step: StepSpec, path: Path) -> ModuleType:
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
    _pickle_by_value(module)
    return module


def _pickle_by_value(module: ModuleType) -> None:
    """Sends the module's functions with the plan, because executors cannot import it."""
    from pyspark.cloudpickle import register_pickle_by_value

    register: Callable[[ModuleType], None] = register_pickle_by_value
    register(module)
