"""The order of the modules: each imports only what stands before it."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "chessrl"
ORDER = (
    "config", "compute", "artifacts", "progress", "stopping", "workers", "metrics", "downloads",
    "sources", "board", "policy", "stages", "scaling", "analysis", "report", "__main__",
)  # fmt: skip
FORBIDDEN = {"board": {"torch", "lightning"}, "policy": {"chess"}}
FILES = sorted(PACKAGE.rglob("*.py"))


def imported(source: str) -> set[str]:
    """Dotted names of everything that a source imports, at whatever depth."""
    names = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            if node.level:
                names.add("." * node.level)  # relative: not the way here
            elif node.module == "chessrl":
                names |= {f"chessrl.{alias.name}" for alias in node.names}
            else:
                names.add(node.module)
    return names


def faults(part: str, source: str) -> list[str]:
    """Imports that a file of this part of the package must not make."""
    wrong = []
    for name in sorted(imported(source)):
        top, _, rest = name.partition(".")
        own = rest.partition(".")[0]
        later = top == "chessrl" and own != part and ORDER.index(own) >= ORDER.index(part)
        if name.startswith("."):
            wrong.append(f"relative import {name}")
        elif later or top in FORBIDDEN.get(part, ()):
            wrong.append(name)
    return wrong


def part_of(path: Path) -> str:
    first = path.relative_to(PACKAGE).parts[0]
    return first.removesuffix(".py")


def test_there_is_something_to_look_at():
    assert len(FILES) > 20
    assert {"board", "policy", "stages", "config"} <= {part_of(path) for path in FILES}


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_a_file_imports_only_what_stands_before_it(path):
    part = part_of(path)
    if part == "__init__":
        assert imported(path.read_text()) == set()
        return
    assert part in ORDER, f"{path} is in no known layer: give it a place in ORDER"
    assert faults(part, path.read_text()) == []


@pytest.mark.parametrize(
    ("part", "source", "wrong"),
    [
        ("board", "import torch", ["torch"]),
        ("board", "def f():\n    from torch import nn", ["torch"]),
        ("board", "from chessrl.policy.losses import x", ["chessrl.policy.losses"]),
        ("board", "from chessrl.artifacts import x", []),
        ("board", "from chessrl.board.tokens import x", []),
        ("policy", "import chess.engine", ["chess.engine"]),
        ("policy", "from chess import Board", ["chess"]),
        ("policy", "from chessrl import stages", ["chessrl.stages"]),
        ("policy", "from . import losses", ["relative import ."]),
        ("stages", "import chess, torch\nfrom chessrl.policy import optim", []),
        ("config", "from chessrl import compute", ["chessrl.compute"]),
        ("report", "from chessrl.scaling import laws", []),
    ],
)
def test_the_check_finds_what_it_looks_for(part, source, wrong):
    assert faults(part, source) == wrong


def test_the_board_loads_without_torch():
    modules = [f"chessrl.board.{path.stem}" for path in (PACKAGE / "board").glob("[a-z]*.py")]
    code = f"import sys, {', '.join(modules)}\nprint('torch' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60,
        check=True,
    )  # fmt: skip
    assert done.stdout.strip() == "False"
