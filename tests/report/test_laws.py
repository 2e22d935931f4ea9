"""What `stage=frontier` and `stage=advise` write and print."""

import pandas as pd
import pytest

from chessrl.__main__ import work
from chessrl.config import InputError
from chessrl.report.laws import report_advice, report_frontier

FEW = ("frontier.budgets.count=30", "frontier.sizes=[47.3e6,203.1e6]")


def test_the_frontier_becomes_files(configure, tmp_path, capsys):
    work(configure("stage=frontier", "law=pre2post", f"out={tmp_path}", *FEW), [])
    table = pd.read_csv(tmp_path / "frontier.csv")
    assert list(table)[:7] == [
        "n_params", "total_flops", "reward", "rl_share", "tokens", "tokens_over_chinchilla",
        "first_on_frontier",
    ]  # fmt: skip
    assert table["first_on_frontier"].sum() == 2
    page = (tmp_path / "frontier.md").read_text()
    assert page.count("\n") == 4 and "| 203.1M | " in page
    printed = capsys.readouterr()
    assert "203.1M" in printed.out and "frontier.csv" in printed.err


def test_measured_points_instead_of_the_law(configure, tmp_path):
    pd.DataFrame(
        {"n_params": [1e6, 1e6], "tokens": [1e8, 1e8], "rl_flops": [0, 4.0],
         "total_flops": [6.0, 10.0], "reward": [0.1, 0.2]}
    ).to_csv(tmp_path / "points.csv")  # fmt: skip
    points = f"frontier.points={tmp_path / 'points.csv'}"
    report_frontier(configure("stage=frontier", f"out={tmp_path}", points))
    assert pd.read_csv(tmp_path / "frontier.csv")["rl_share"].tolist() == [0, 0.4]
    with pytest.raises(InputError, match=r"frontier.points=none.csv is no table"):
        report_frontier(configure("stage=frontier", "frontier.points=none.csv"))


def test_a_folder_that_cannot_be_written_to(configure, tmp_path):
    (tmp_path / "file").write_text("")
    run = configure("stage=frontier", f"out={tmp_path / 'file'}", *FEW)
    with pytest.raises(InputError, match=r"cannot write to .*: give another folder with out="):
        report_frontier(run)


def test_advice_is_a_few_lines(configure, capsys):
    asked = ("stage=advise", "advise.n_params=203.1e6", "advise.tokens=1e10")
    work(configure(*asked, "advise.flops=5e19"), [])
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 4
    assert lines[0].startswith("pretrain on ") and "then switch to RL with " in lines[0]
    assert "more tokens" in lines[1] and "+- 0.019" in lines[2]
    assert lines[3].startswith("with RL at once: 0.")
    report_advice(configure("stage=advise", "advise.n_params=20.5e6", "advise.tokens=3e11",
                            "advise.flops=1e19"))  # fmt: skip
    assert capsys.readouterr().out.startswith("pretrain no more (loss ")
    small = ("advise.n_params=47.3e6", "advise.tokens=1e9", "advise.loss=0.9",
             "advise.flops=1e18")  # fmt: skip
    report_advice(configure("stage=advise", *small))
    assert "RL does not pay with this budget" in capsys.readouterr().out
    with pytest.raises(InputError, match=r"needs advise.n_params= and advise.flops="):
        report_advice(configure(*asked))


@pytest.mark.parametrize(
    ("override", "named"),
    [
        ("law.loss.alpha=0", "law.loss.alpha"),
        ("law.loss.e=-1", "law.loss.e"),
        ("law.max_loss=0.4", "must lie above law.loss.e"),
        ("law.anchor=0", "law.anchor"),
        ("law.error=-1", "law.error"),
        ("frontier.sizes=[]", "frontier.sizes"),
        ("frontier.budgets.low=1e30", "0 < low < high"),
        ("frontier.budgets.count=1", "frontier.budgets.count"),
        ("frontier.sft_flops=-1", "frontier.sft_flops"),
        ("frontier.epsilon=-1", "frontier.epsilon"),
        ("advise.n_params=0", "advise.n_params"),
        ("advise.tokens=-1", "advise.tokens"),
        ("advise.loss=0.8", "give both"),
    ],
)
def test_settings_out_of_range_are_refused(override, named, configure):
    with pytest.raises(InputError, match=named):
        configure(override)
