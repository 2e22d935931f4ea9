"""The pages of docs/ say what conf/ says: defaults in their tables, and the study's."""

import dataclasses
import re
import shlex
from collections.abc import Iterator
from functools import reduce
from pathlib import Path

import pytest

from chessrl.config import RlConfig

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
GROUPS = ("pretrain", "traces", "sft", "rl", "evaluate")
CELL = r"`([a-z0-9_.]+)`"


def rows(group: str) -> list[tuple[str, str, str]]:
    """Setting, default and study's value of each row of a page's table of settings."""
    found = []
    for line in (DOCS / f"{group}.md").read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        names = re.findall(CELL, cells[0])
        if len(cells) != 4 or not names or not names[0].startswith(f"{group}."):
            continue
        home = names[0].rpartition(".")[0]
        names = [name if "." in name else f"{home}.{name}" for name in names]
        values = [[part.strip(" `") for part in cell.split(",")] for cell in cells[1:3]]
        if values[1] == ["the same"]:
            values[1] = values[0]
        assert len(values[0]) == len(values[1]) == len(names), line
        found += zip(names, *values, strict=True)
    return found


def agrees(said: str, value: object) -> bool:
    """Whether a cell says what a setting is."""
    if value is None:
        return said == "null"
    if isinstance(value, bool):
        return said == str(value).lower()
    return said == value if isinstance(value, str) else float(said) == pytest.approx(value)


def valued(config: object, names: str) -> object:
    """The value of a setting by its dotted name."""
    return reduce(getattr, names.split("."), config)


@pytest.mark.parametrize("group", GROUPS)
def test_tables_of_settings_agree_with_conf(group, configure):
    table = rows(group)
    assert len(table) >= 5
    for column, run in ((1, configure()), (2, configure(f"{group}=study"))):
        for row in table:
            assert agrees(row[column], valued(run, row[0])), row


def leaves(kind: type, name: str) -> Iterator[str]:
    """Dotted names of all settings of a dataclass."""
    for field in dataclasses.fields(kind):
        if dataclasses.is_dataclass(field.type):
            yield from leaves(field.type, f"{name}.{field.name}")
        else:
            yield f"{name}.{field.name}"


def test_every_setting_of_rl_has_its_row():
    settings = {name for name in leaves(RlConfig, "rl") if not name.startswith("rl.optim.")}
    assert settings <= {name for name, *_ in rows("rl")}


def test_the_table_of_recipes_agrees_with_conf(configure):
    lines = (DOCS / "rl.md").read_text(encoding="utf-8").splitlines()
    table = [[cell.strip(" `") for cell in line.strip("|").split("|")] for line in lines]
    [head] = [row for row in table if row[0] == "setting" and "scalerl" in row]
    names = {path.stem for path in (ROOT / "conf" / "rl").glob("*.yaml")} - {"study", "tabletop"}
    assert set(head[1:]) == names
    table = [row for row in table if len(row) == len(head) and row[0].startswith("rl.")]
    assert len(table) >= 10
    for column, name in enumerate(head[1:], start=1):
        run = configure(f"rl={name}")
        for row in table:
            assert agrees(row[column], valued(run, row[0])), (name, row)


def test_the_table_of_harvest_agrees_with_conf(configure):
    page = (DOCS / "harvest.md").read_text(encoding="utf-8")
    table = re.findall(r"^\| `harvest\.(\w+)` \| (\S+) \|", page, re.MULTILINE)
    settings = configure().harvest
    assert {name for name, _ in table} == {field.name for field in dataclasses.fields(settings)}
    for name, said in table:
        value = getattr(settings, name)
        assert agrees(said, value)


LOOP = re.findall(
    r"^    python -m chessrl (.*)$", (DOCS / "harvest.md").read_text(encoding="utf-8"), re.MULTILINE
)


@pytest.mark.parametrize("command", LOOP)
def test_the_commands_of_the_loop_are_accepted(command, configure):
    assert configure(*shlex.split(command)).stage in (
        "harvest",
        "pretrain",
        "sft",
        "rl",
        "evaluate",
    )


def test_the_table_of_budgets_agrees_with_conf(configure):
    page = (DOCS / "sweeps.md").read_text(encoding="utf-8")
    table = re.findall(r"^\| `budget\.(\w+)` \| (\S+) \| (\S+) \|", page, re.MULTILINE)
    none, tabletop = configure().budget, configure("budget=tabletop").budget
    assert {name for name, *_ in table} == {field.name for field in dataclasses.fields(none)}
    for name, said, other in table:
        assert agrees(said, getattr(none, name)) and agrees(other, getattr(tabletop, name))


def test_every_study_has_its_row():
    page = (DOCS / "sweeps.md").read_text(encoding="utf-8")
    table = re.search(r"\| study \| cells \|\n.*?\n\n", page, re.DOTALL).group()
    studies = {path.stem for path in (ROOT / "conf" / "experiment").glob("*.yaml")}
    assert set(re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)) == studies
