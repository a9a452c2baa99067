"""Imports point down only; scanning, labelling, slicing and reporting load neither torch nor transformers."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1] / "recallgap"
BASE = {"errors", "artifact", "staging", "registry", "progress", "callable_module"}
ANALYSIS = BASE | {"corpus", "counts", "recall", "slices", "report"}
MAY_IMPORT = {
    "errors": set(),
    "registry": {"errors"},
    "progress": set(),
    "callable_module": set(),
    "artifact": {"errors"},
    "staging": {"errors", "artifact", "progress"},
    "corpus": BASE,
    "counts": BASE | {"corpus"},
    "recall": BASE | {"corpus", "counts"},
    "slices": BASE | {"corpus", "counts", "recall"},
    "report": ANALYSIS,
    "models": BASE,
    "evaluate": BASE | {"corpus", "models"},
    "pretrain": BASE | {"corpus", "counts", "recall", "models", "evaluate"},
    "mqar": BASE | {"models", "recall", "report"},
    "theory": BASE | {"models", "recall", "report"},
    "pipeline": ANALYSIS | {"evaluate"},
    "demo": ANALYSIS | {"evaluate", "pipeline"},
    "cli": ANALYSIS | {"models", "evaluate", "pretrain", "pipeline", "demo", "mqar", "theory"},
    "__init__": set(),
}
LIGHT = ("corpus", "counts", "recall", "slices", "report", *BASE)
HEAVY = {"torch", "transformers", "datasets", "safetensors", "accelerate", "gguf"}
MAX_LINES = 280


def imported_modules(tree, *, top_level_only):
    """Dotted names that a module imports; those inside functions only when asked."""
    nodes = tree.body if top_level_only else ast.walk(tree)
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            yield node.module
            if node.module == "recallgap":
                yield from (f"recallgap.{alias.name}" for alias in node.names)


def faults(part, source):
    """What is wrong with the imports of a module of `part`, as texts."""
    tree = ast.parse(source)
    for name in imported_modules(tree, top_level_only=False):
        top, _, rest = name.partition(".")
        target = rest.partition(".")[0]
        own = top == "recallgap" and target and not target.startswith("__")
        if own and target != part and target not in MAY_IMPORT[part]:
            yield f"{part} imports {name}"
    if part in LIGHT:
        for name in imported_modules(tree, top_level_only=True):
            if name.partition(".")[0] in HEAVY:
                yield f"{part} imports {name} at its top"


MODULES = [
    pytest.param(path.relative_to(ROOT).parts[0].removesuffix(".py"), path, id=str(path.relative_to(ROOT)))
    for path in sorted(ROOT.rglob("*.py"))
]


@pytest.mark.parametrize(("part", "path"), MODULES)
def test_imports_point_down(part, path):
    assert list(faults(part, path.read_text())) == []


def test_a_forbidden_import_is_found():
    assert list(faults("corpus", "from recallgap.slices import gap")) == ["corpus imports recallgap.slices"]
    assert list(faults("counts", "def f():\n    import recallgap.evaluate.run")) != []
    assert list(faults("recall", "import torch")) == ["recall imports torch at its top"]
    assert list(faults("corpus", "def f():\n    import transformers")) == []


@pytest.mark.parametrize(("part", "path"), MODULES)
def test_a_file_is_read_in_one_sitting(part, path):
    assert len(path.read_text().splitlines()) <= MAX_LINES


def test_importing_recallgap_loads_no_torch():
    code = (
        "import sys, recallgap; sys.exit(any(m in sys.modules for m in ('torch', 'transformers', 'numba')))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_public_functions_can_be_called_whatever_was_imported_before():
    """A package hides the function it is named after once it is loaded."""
    code = (
        "import recallgap as rg; first = {name: getattr(rg, name) for name in rg.__all__}; "
        "import recallgap.evaluate.run, recallgap.pretrain.run; "
        "assert all(callable(f) for f in first.values()); "
        "assert all(callable(getattr(rg, name)) for name in rg.__all__); "
        "rg.evaluate.evaluate = rg.pretrain.pretrain = lambda *a, **k: (a, k); "
        "assert rg.evaluate(1, x=2) == rg.pretrain(1, x=2) == ((1,), {'x': 2})"
    )
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
