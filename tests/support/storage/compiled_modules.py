"""The compiled modules of penstock.records as plain Python too, and the two forms compared."""

import sys
from collections.abc import Callable
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from types import ModuleType

import penstock.records
from penstock.core.errors import KafkaError


def load_plain(imported: ModuleType) -> ModuleType:
    """The source of a module, under another name, beside the form that Penstock imports."""
    own_name = imported.__name__.rpartition(".")[2]
    name = f"penstock{own_name}_as_plain_python"
    if name in sys.modules:
        return sys.modules[name]
    path = Path(penstock.records.__path__[0], f"{own_name}.py")
    loader = SourceFileLoader(name, str(path))
    spec = spec_from_loader(name, loader)
    assert spec is not None
    module = module_from_spec(spec)
    loader.exec_module(module)
    sys.modules[name] = module
    return module


def outcome(call: Callable[[], object]) -> tuple[str, object]:
    """Returns the result of a call, or its exception."""
    try:
        return "returned", call()
    except (KafkaError, ValueError, OverflowError, IndexError, TypeError) as error:
        kind = type(error).__name__
        return kind, str(error) if isinstance(error, KafkaError) else None


def same(imported: ModuleType, call: Callable[[ModuleType], object]) -> tuple[str, object]:
    """The outcome of a call, which must be the same for both forms of a module."""
    made = outcome(lambda: call(imported))
    assert made == outcome(lambda: call(load_plain(imported)))
    return made
