"""The pages of docs/ say what conf/ says: defaults in their tables, and the study's."""

import re
from functools import reduce
from pathlib import Path

import pytest

DOCS = Path(__file__).parent.parent / "docs"
GROUPS = ("pretrain", "traces", "sft", "rl", "evaluate")
CELL = r"`([a-z_.]+)`"


def rows(group: str) -> list[tuple[str, str, str]]:
    """Setting, default and study's value of each row of a page's table of settings."""
    found = []
    for line in (DOCS / f"{group}.md").read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        names = re.findall(CELL, cells[0])
        if len(cells) < 4 or not names or not names[0].startswith(f"{group}."):
            continue
        home = names[0].rpartition(".")[0]
        names = [name if "." in name else f"{home}.{name}" for name in names]
        values = [[part.strip(" `") for part in cell.split(",")] for cell in cells[1:3]]
        if values[1] == ["the same"]:
            values[1] = values[0]
        assert len(values[0]) == len(values[1]) == len(names), line
        found += zip(names, *values, strict=True)
    return found


@pytest.mark.parametrize("group", GROUPS)
def test_tables_of_settings_agree_with_conf(group, configure):
    table = rows(group)
    assert len(table) >= 5
    for column, run in ((1, configure()), (2, configure(f"{group}=study"))):
        for row in table:
            value = reduce(getattr, row[0].split("."), run)
            said = row[column] if isinstance(value, str) else pytest.approx(float(row[column]))
            assert said == value, row
