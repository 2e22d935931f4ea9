"""Trunks and branches: a branch equals a run of its length alone, whatever came before it."""

import dataclasses
import fcntl
from pathlib import Path

import pytest
import torch
from curves import curve
from safetensors.torch import load_file

from chessrl import compute
from chessrl.artifacts import Result
from chessrl.board import tokens
from chessrl.config import InputError
from chessrl.policy.weights import new_model
from chessrl.scaling.collect import collect
from chessrl.stages import pretrain as stage
from chessrl.stages.batches import Dataset, Schedule
from chessrl.stages.checkpoints import checkpoints_in, step_of
from chessrl.stages.language import fit_documents
from chessrl.stages.runs import folder, run_identity
from chessrl.stages.training import Steps

WSD = (
    "pretrain.optim.schedule=wsd", "pretrain.optim.warmup=0", "pretrain.optim.warmup_steps=3",
    "pretrain.optim.decay=0.3", "pretrain.checkpoint_every=4",
)  # fmt: skip
SHORT, MIDDLE, LONG = "1.5e4", "2.2e4", "4e4"


@pytest.fixture
def branch(prepared, tiny, tmp_path):
    """A run of so many tokens; all of a test share their trunk."""
    (tmp_path / "outputs").mkdir()
    base = tiny(prepared)
    made = Path(base.outputs) / base.run
    (tmp_path / "outputs" / base.run).symlink_to(tmp_path / "work")
    (tmp_path / "work").mkdir()
    for path in made.glob("prepare-*"):
        (tmp_path / "work" / path.name).symlink_to(path)

    def made_run(length: str, *more: str):
        return tiny(
            tmp_path / "outputs", "stage=pretrain", *WSD, f"pretrain.tokens={length}", *more
        )

    return made_run


def weights(run) -> dict[str, torch.Tensor]:
    return load_file(folder(run, "pretrain").checkpoints / "model.safetensors")


def plan(run) -> Schedule:
    config = run.pretrain
    return Schedule(
        Dataset(folder(run, "prepare").path / "train"),
        batch_tokens=config.batch_tokens, context=config.context, seed=run.seed, pad=tokens.PAD,
        tokens=config.tokens,
    )  # fmt: skip


def alone(run, out) -> dict[str, torch.Tensor]:
    """The same training in one go, without a trunk."""
    model = new_model(run.model, len(tokens.TOKENS), run.seed)
    schedule, config = plan(run), run.pretrain
    place = dataclasses.replace(run, out=str(out), stage="pretrain")
    fit_documents(
        run, "alone", folder(place, "pretrain"), model, schedule, config.optim,
        steps=len(schedule), flops=0.0, games=True, microbatch_tokens=config.microbatch_tokens,
        checkpoint_every=config.checkpoint_every, log_every=1,
    )  # fmt: skip
    return model.state_dict()


def interrupt(monkeypatch, run, when: int) -> None:
    """Pretrain up to a step, and fail there."""
    whole = Steps.__iter__

    def cut(self):
        for number, batch in enumerate(whole(self), self.trainer.global_step):
            if number == when:
                raise RuntimeError("killed")
            yield batch

    with monkeypatch.context() as patch, pytest.raises(RuntimeError, match="killed"):
        patch.setattr(Steps, "__iter__", cut)
        stage.pretrain(run)


def trunk_steps(run) -> int:
    return len(plan(run)) - round(0.3 * len(plan(run)))


def cost(run, steps: int) -> float:
    """FLOPs of the first so many steps: 6 for each active weight and token."""
    active = compute.active_parameters(run.model, len(tokens.TOKENS))
    return 6 * active * plan(run).cumulative[steps - 1]


def spent_by_trunk(run) -> float:
    return folder(run, "trunk").result.measures["flops_spent"]


def equal(ours, theirs) -> bool:
    return ours.keys() == theirs.keys() and all(torch.equal(ours[n], theirs[n]) for n in ours)


@pytest.mark.parametrize(
    "order", [(SHORT, MIDDLE, LONG), (LONG, SHORT, MIDDLE)], ids=["up", "down"]
)
def test_a_branch_is_the_run_of_its_length_alone(branch, order, tmp_path):
    spent = {}
    for length in order:
        run = branch(length)
        result = stage.pretrain(run)
        spent[length] = result.measures["flops_spent"]
        assert equal(weights(run), alone(run, tmp_path / f"alone-{length}"))
        ours = curve(folder(run, "pretrain").metrics)
        theirs = curve(tmp_path / f"alone-{length}" / "metrics.csv")
        for name in ("step", "loss", "tokens", "lr_matrices", "lr_plain"):
            assert [row[name] for row in ours] == [row[name] for row in theirs]
        active = compute.active_parameters(run.model, len(tokens.TOKENS))
        assert result.flops["pretrain"] == 6 * active * plan(run).tokens  # as if alone
    trunk = folder(branch(SHORT), "trunk")
    assert {folder(branch(length), "trunk").path for length in order} == {trunk.path}
    steps = {length: len(plan(branch(length))) for length in order}
    branching = {length: n - round(0.3 * n) for length, n in steps.items()}
    kept = [step_of(path) for path in checkpoints_in(trunk.path / "branches")]
    assert kept == sorted(branching.values()) and len(set(kept)) == 3
    # what was spent: each branch its last part, and the trunk its own, once
    read = {length: plan(branch(length)).cumulative for length in order}
    for length in order:
        part = read[length][-1] - read[length][branching[length] - 1]
        assert spent[length] == pytest.approx(6 * active * part)
    grown = Result.read(trunk.path / "result.json")
    assert grown.status == "open"
    parts = [branching[LONG]]
    if order[0] == LONG:  # gone past the others, so run again: up to SHORT, and on to MIDDLE
        parts += [branching[MIDDLE]]
    once = [6 * active * read[LONG][part - 1] for part in parts]
    assert grown.measures["flops_spent"] == pytest.approx(sum(once))
    assert grown.measures["steps"] == branching[LONG]


@pytest.mark.parametrize("when", [1, 6, 9])
def test_what_was_interrupted_goes_on_the_same(branch, tmp_path, monkeypatch, when):
    """Within the trunk before and after its first checkpoint, and within the branch."""
    run = branch(MIDDLE)
    assert when == 9 or when < len(plan(run)) - round(0.3 * len(plan(run)))
    interrupt(monkeypatch, run, when)
    stage.pretrain(run)
    assert equal(weights(run), alone(run, tmp_path / "alone"))
    assert spent_by_trunk(run) == pytest.approx(cost(run, trunk_steps(run)))


def test_a_trunk_that_fails_to_grow_tells_what_it_had_spent(branch, monkeypatch):
    stage.pretrain(branch(SHORT))
    before = spent_by_trunk(branch(SHORT))
    interrupt(monkeypatch, branch(LONG), 9)
    assert folder(branch(LONG), "trunk").result.status == "failed"
    assert spent_by_trunk(branch(LONG)) == before == pytest.approx(cost(branch(SHORT), 6))


def test_a_trunk_run_again_keeps_the_time_of_its_furthest_step(branch):
    stage.pretrain(branch(LONG))
    trunk = folder(branch(LONG), "trunk")
    before = trunk.result.seconds
    stage.pretrain(branch(SHORT))
    assert trunk.result.seconds == before > 0


def test_a_shorter_branch_after_an_interrupted_longer_one(branch, tmp_path, monkeypatch):
    """What it left lies beyond the trunk's end, and counts when the trunk grows past it."""
    interrupt(monkeypatch, branch(LONG), 14)
    stage.pretrain(branch(SHORT))
    assert spent_by_trunk(branch(SHORT)) == pytest.approx(cost(branch(LONG), 6))
    stage.pretrain(branch(LONG))
    assert spent_by_trunk(branch(LONG)) == pytest.approx(cost(branch(LONG), 17))
    assert equal(weights(branch(LONG)), alone(branch(LONG), tmp_path / "alone"))


def test_a_rolling_state_at_the_branching_step_is_kept_as_it_is(branch, tmp_path):
    stage.pretrain(branch(SHORT))
    earlier = branch(SHORT, "pretrain.optim.decay=0.55")  # 9 - round(0.55 * 9) = 4
    before = spent_by_trunk(earlier)
    assert 4 in [step_of(path) for path in checkpoints_in(folder(earlier, "trunk").checkpoints)]
    stage.pretrain(earlier)
    assert spent_by_trunk(earlier) == before
    assert equal(weights(earlier), alone(earlier, tmp_path / "alone"))


@pytest.mark.parametrize(
    ("setting", "named"),
    [("warmup_steps=7", "step 6 of 9, before the warm-up is over"), ("decay=0.05", "of 9 steps")],
)
def test_a_run_too_short_for_its_schedule_is_refused(branch, setting, named):
    with pytest.raises(InputError, match=named) as refused:
        stage.pretrain(branch(SHORT, f"pretrain.optim.{setting}"))
    assert "\n" not in str(refused.value)


def test_a_trunk_in_use_is_refused(branch):
    run = branch(SHORT)
    trunk = folder(run, "trunk")
    trunk.path.mkdir()
    with open(trunk.path / ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(InputError, match=r"another process is working in .*trunk"):
            stage.pretrain(run)


def test_a_trunk_is_collected_with_its_branches(branch):
    run = branch(SHORT)
    result = stage.pretrain(run)
    results, _ = collect(str(Path(run.outputs) / run.run))
    found = {each.stage: each for each in results}
    assert found["trunk"].status == "open" and not found["trunk"].flops
    spent = sum(each.measures.get("flops_spent", 0.0) for each in found.values())
    assert spent == pytest.approx(result.flops["pretrain"])  # one branch: nothing was shared


def test_a_damaged_state_of_the_trunk_is_made_again(branch, tmp_path):
    stage.pretrain(branch(SHORT))
    (state,) = checkpoints_in(folder(branch(SHORT), "trunk").path / "branches")
    sound = state.read_bytes()
    state.write_bytes(sound[: len(sound) // 2])
    longer_decay = branch(SHORT, "pretrain.optim.final=0.2")
    stage.pretrain(longer_decay)
    assert len(state.read_bytes()) == len(sound)
    assert equal(weights(longer_decay), alone(longer_decay, tmp_path / "alone"))


def test_who_shares_a_trunk(branch):
    trunk = run_identity(branch(SHORT), "trunk")
    same = ("pretrain.optim.decay=0.1", "pretrain.optim.final=0.5")
    other = ("seed=1", "model=300k", "pretrain.optim.warmup_steps=4", "pretrain.optim.lr=1e-3")
    assert run_identity(branch(LONG), "trunk") == trunk
    assert all(run_identity(branch(SHORT, change), "trunk") == trunk for change in same)
    assert all(run_identity(branch(SHORT, change), "trunk") != trunk for change in other)
    assert len({run_identity(branch(SHORT, *c), "pretrain") for c in ((), same[:1], same[1:])}) == 3
