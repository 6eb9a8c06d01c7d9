"""The layout, checked on the source itself: which package imports which, where heavy libraries load, how code reads.

Each rule is a function from a parsed module to the faults it finds; the first half of the file applies the rules to
src/tailwise, the second half shows that every rule catches a bad example.
"""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import tailwise

PACKAGE = Path(__file__).parents[2] / "src" / "tailwise"

# A package may import itself and those to its right. `tailwise` itself may name any of them (lazily).
ORDER = (
    "__main__", "cli", "tailwise", "web", "inference", "ray", "report", "experiments", "campaign", "cycle",
    "adapters", "strategies",
    "formats", "learners", "pools", "solver", "matrix", "calibration", "softmax", "targets", "score",
    "processes", "files", "inputs", "selection", "types", "errors",
)  # fmt: skip
RANK = {package: rank for rank, package in enumerate(ORDER)}
EXCEPTIONS = {  # (file, package): imported when called, never at import
    ("campaign/service.py", "report"),  # Campaign.report and Campaign.serve open what is built on campaigns
    ("campaign/service.py", "web"),
}

LIBRARY_PACKAGE = {
    "cleanlab": "campaign",
    "fastapi": "web",
    "highspy": "solver",
    "imagehash": "campaign",
    "llvmlite": "matrix",
    "matplotlib": "report",
    "numba": "matrix",
    "ray": "ray",
    "rich": "cli",
    "sqlite3": "campaign",
    "starlette": "web",
    "skactiveml": "adapters",
    "torch": "learners",
    "transformers": "learners",
    "typer": "cli",
    "umap": "campaign",
    "uvicorn": "web",
}
ALSO = {("torch", "adapters"), ("transformers", "adapters"), ("rich", "types")}  # a user's own model; the progress bar
LEFT_OUT_OF_IMPORT = {"highspy", "matplotlib", "numba", "pandas", "ray", "scipy", "sklearn", "torch"}
IMPORT_SECONDS = 0.3
LONGEST_FILE = 450
LONGEST_BODY = 60

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True)
class Module:
    """One source file: where it stands in the package, and what it says."""

    path: Path  # relative to the package's folder
    text: str
    tree: ast.Module

    @classmethod
    def parse(cls, path: str | Path, text: str) -> Module:
        return cls(Path(path), text, ast.parse(text))

    @property
    def part(self) -> str:
        if self.path == Path("__init__.py"):
            return "tailwise"
        return self.path.parts[0] if len(self.path.parts) > 1 else self.path.stem

    @property
    def package(self) -> list[str]:
        """The dotted parts that a relative import starts from."""
        return ["tailwise", *self.path.parent.parts]

    def functions(self) -> Iterator[Function]:
        for node in ast.walk(self.tree):
            if isinstance(node, Function):
                yield node


def imported_names(module: Module) -> Iterator[tuple[int, str]]:
    """Line and absolute dotted name of everything imported, by statement or by a call with a literal name."""
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            start = module.package[: len(module.package) - node.level + 1] if node.level else []
            base = ".".join([*start, *([node.module] if node.module else [])])
            yield from ((node.lineno, f"{base}.{alias.name}") for alias in node.names)
        elif isinstance(node, ast.Call) and called_name(node) in {"import_module", "__import__"}:
            first = node.args[0] if node.args else None
            if isinstance(first, ast.Constant) and isinstance(first.value, str):
                yield node.lineno, first.value


def called_name(call: ast.Call) -> str:
    if isinstance(call.func, ast.Attribute):
        return call.func.attr
    return call.func.id if isinstance(call.func, ast.Name) else ""


def package_of_import(name: str) -> str | None:
    """The package that a dotted name lives in; None outside the package."""
    package, _, rest = name.partition(".")
    if package != "tailwise":
        return None
    first = rest.split(".")[0]
    if first == "__version__":
        return None  # known before anything else is imported
    home = tailwise._HOME.get(first)
    return home.split(".")[0] if home else first or "tailwise"


def backward_imports(module: Module) -> list[str]:
    if module.part not in RANK:
        return [f"{module.path}: {module.part!r} has no place in the order"]
    if module.part == "tailwise":
        return []
    faults = []
    for line, name in imported_names(module):
        package = package_of_import(name)
        if package is None or package == module.part:
            continue
        if package not in RANK:
            faults.append(f"{module.path}:{line}: {name} is in no known package")
        elif RANK[package] < RANK[module.part] and (module.path.as_posix(), package) not in EXCEPTIONS:
            faults.append(f"{module.path}:{line}: {module.part} imports {package}, which is to its left")
    return faults


def misplaced_libraries(module: Module) -> list[str]:
    faults = []
    for line, name in imported_names(module):
        library = name.split(".")[0]
        home = LIBRARY_PACKAGE.get(library)
        if home is not None and home != module.part and (library, module.part) not in ALSO:
            faults.append(f"{module.path}:{line}: {library} belongs in {home}/ alone")
    return faults


def missing_docstring(module: Module) -> list[str]:
    return [] if ast.get_docstring(module.tree) else [f"{module.path}: no docstring"]


def untyped_functions(module: Module) -> list[str]:
    bare = [f for f in module.functions() if f.returns is None]
    return [f"{module.path}:{f.lineno}: {f.name} has no return annotation" for f in bare]


def prints(module: Module) -> list[str]:
    if module.part == "cli":
        return []
    calls = [n for n in ast.walk(module.tree) if isinstance(n, ast.Call) and called_name(n) == "print"]
    return [f"{module.path}:{call.lineno}: print outside cli/" for call in calls]


def long_file(module: Module) -> list[str]:
    lines = len(module.text.splitlines())
    return [f"{module.path}: {lines} lines, more than {LONGEST_FILE}"] if lines > LONGEST_FILE else []


def long_functions(module: Module) -> list[str]:
    faults = []
    for function in module.functions():
        lines = body_lines(function)
        if lines > LONGEST_BODY:
            faults.append(f"{module.path}:{function.lineno}: {function.name} has {lines} lines")
    return faults


def body_lines(function: Function) -> int:
    """Lines of the body, the docstring left out."""
    documented = ast.get_docstring(function) is not None and len(function.body) > 1
    first = function.body[1 if documented else 0]
    return (function.end_lineno or first.lineno) - first.lineno + 1


Rule = Callable[[Module], list[str]]
RULES: list[Rule] = [
    backward_imports,
    misplaced_libraries,
    missing_docstring,
    untyped_functions,
    prints,
    long_file,
    long_functions,
]


@pytest.fixture(scope="module")
def modules() -> list[Module]:
    paths = sorted(PACKAGE.rglob("*.py"))
    return [Module.parse(path.relative_to(PACKAGE), path.read_text(encoding="utf-8")) for path in paths]


def test_the_source_is_found(modules: list[Module]) -> None:
    assert {"tailwise", "errors", "types", "inputs"} <= {module.part for module in modules}


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_the_source_keeps_the_rule(rule: Rule, modules: list[Module]) -> None:
    assert [fault for module in modules for fault in rule(module)] == []


def test_importing_tailwise_loads_none_of_its_modules(modules: list[Module]) -> None:
    door = next(module for module in modules if module.part == "tailwise")
    top = [node for node in door.tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
    eager = [alias.name for node in top if not is_standard(node) for alias in node.names]
    assert eager == []


def is_standard(node: ast.Import | ast.ImportFrom) -> bool:
    if isinstance(node, ast.ImportFrom):
        return not node.level and (node.module or "").split(".")[0] in sys.stdlib_module_names
    return all(alias.name.split(".")[0] in sys.stdlib_module_names for alias in node.names)


IMPORT_PROBE = """
import json, sys, time
start = time.process_time()  # of this process alone: others may be using the machine
import tailwise
seconds = time.process_time() - start
print(json.dumps({"seconds": seconds, "modules": sorted({name.split(".")[0] for name in sys.modules})}))
"""


def test_importing_tailwise_is_fast_and_loads_no_heavy_library() -> None:
    probes = [probe_import() for _ in range(3)]
    assert min(seconds for seconds, _ in probes) < IMPORT_SECONDS
    for _, loaded in probes:
        assert "tailwise" in loaded
        assert loaded & LEFT_OUT_OF_IMPORT == set()


def probe_import() -> tuple[float, set[str]]:
    done = subprocess.run([sys.executable, "-c", IMPORT_PROBE], capture_output=True, text=True, check=True)
    answer = json.loads(done.stdout)
    return answer["seconds"], set(answer["modules"])


@pytest.mark.parametrize("name", tailwise.__all__)
def test_every_public_name_resolves_and_is_shown(name: str) -> None:
    assert getattr(tailwise, name) is not None
    assert name in dir(tailwise)


def test_every_lazy_name_is_public() -> None:
    assert {*tailwise._HOME, *tailwise._MODULES, "__version__"} == set(tailwise.__all__)


def test_an_unknown_public_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'selekt'"):
        _ = tailwise.selekt


# The rules themselves: each must catch a bad example, and let a good one pass.


def faults(rule: Rule, text: str, path: str = "solver/dual.py") -> list[str]:
    return rule(Module.parse(path, text))


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("solver/dual.py", "from ..strategies import make"),
        ("solver/dual.py", "from .. import strategies"),
        ("solver/dual.py", "from tailwise.campaign.ledger import Ledger"),
        ("solver/dual.py", "import tailwise.campaign"),
        ("solver/dual.py", "import tailwise"),
        ("solver/dual.py", "from tailwise import select"),
        ("solver/dual.py", "def f():\n    from ..pools.datasets import cifar10"),
        ("solver/dual.py", "if TYPE_CHECKING:\n    from ..cycle import Cycle"),
        ("solver/dual.py", "importlib.import_module('tailwise.cycle')"),
        ("solver/deep/dual.py", "from ...strategies import make"),
        ("solver/__init__.py", "from ..strategies import make"),
        ("campaign/ledger.py", "def f():\n    from ..web.serve import Options"),
        ("errors.py", "from .types import Selection"),
        ("cycle.py", "from .web import page"),
        ("solver/dual.py", "from ..helpers import clip"),
        ("helpers.py", ""),
    ],
)
def test_an_import_to_the_left_is_caught(path: str, text: str) -> None:
    assert len(faults(backward_imports, text, path)) == 1


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("solver/dual.py", "import numpy as np\nfrom ..errors import BadInput\nfrom .newton import smooth"),
        ("solver/dual.py", "from tailwise import errors\nfrom .. import __version__\nfrom tailwise import Selection"),
        ("solver/__init__.py", "from .dual import bound"),
        ("campaign/service.py", "def f():\n    from ..web.serve import Options"),
        ("cli/__init__.py", "import tailwise\nfrom ..strategies.select import select"),
        ("cycle.py", "from .strategies import make\nfrom .types import Predictions"),
        ("__main__.py", "from .cli import main"),
        ("__init__.py", "from .strategies.select import select"),
    ],
)
def test_an_import_to_the_right_is_allowed(path: str, text: str) -> None:
    assert faults(backward_imports, text, path) == []


@pytest.mark.parametrize("library", sorted(LIBRARY_PACKAGE))
@pytest.mark.parametrize("form", ["import {0}", "import {0}.sub as s", "from {0} import x", "def f():\n    import {0}"])
def test_a_heavy_library_outside_its_package_is_caught(library: str, form: str) -> None:
    text = form.format(library)
    assert len(faults(misplaced_libraries, text, "targets.py")) == 1
    assert faults(misplaced_libraries, text, f"{LIBRARY_PACKAGE[library]}/inner.py") == []


def test_a_heavy_library_loaded_by_name_is_caught() -> None:
    assert len(faults(misplaced_libraries, "importlib.import_module('torch.nn')")) == 1
    assert len(faults(misplaced_libraries, "__import__('ray')")) == 1


def test_a_module_without_a_docstring_is_caught() -> None:
    assert len(faults(missing_docstring, "x = 1")) == 1
    assert faults(missing_docstring, '"""What it is."""') == []


def test_a_function_without_a_return_annotation_is_caught() -> None:
    assert len(faults(untyped_functions, "class A:\n    async def f(self): ...\n    def g(self) -> None: ...")) == 1


def test_print_is_caught_outside_the_command_line() -> None:
    assert len(faults(prints, "print('x')")) == 1
    assert faults(prints, "print('x')", "cli/show.py") == []


def test_a_long_file_is_caught() -> None:
    assert len(faults(long_file, "x = 1\n" * (LONGEST_FILE + 1))) == 1
    assert faults(long_file, "x = 1\n" * LONGEST_FILE) == []


def test_a_long_function_is_caught_and_its_docstring_does_not_count() -> None:
    docstring = '    """Say.\n' + "    more\n" * 50 + '    """\n'
    body = "    x = 1\n"
    assert len(faults(long_functions, "def f():\n" + docstring + body * (LONGEST_BODY + 1))) == 1
    assert faults(long_functions, "def f():\n" + docstring + body * LONGEST_BODY) == []
