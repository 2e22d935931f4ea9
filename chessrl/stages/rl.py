"""Fifth stage: the policy answers puzzles and python-chess marks the answers.

Policy gradients with verified rewards, from GRPO as the chess study used it (arXiv 2402.03300) to
ScaleRL (arXiv 2510.13786): what they differ in are choices in `conf/rl`. One update per batch of
episodes. With experts the load-balancing loss is left out, so that a group that agrees teaches
nothing.
"""

import contextlib
import dataclasses
from collections.abc import Iterator, Sequence

import torch

from chessrl import compute
from chessrl.artifacts import Result, RunFolder
from chessrl.board import tokens
from chessrl.board.engine import Engine
from chessrl.board.puzzles import Puzzle, read_puzzles
from chessrl.board.rewards import Reward, choose
from chessrl.board.selftest import check_judge
from chessrl.board.skips import SkipReport
from chessrl.config import InputError, Run
from chessrl.policy.transformer import Transformer
from chessrl.policy.weights import load_model, save_model
from chessrl.stages.asynchronous import Asynchronous
from chessrl.stages.curriculum import Curriculum
from chessrl.stages.curve import Curve, log_spaced
from chessrl.stages.generation import Alternating, Generation, Pipeline, rules_of
from chessrl.stages.group import group, join
from chessrl.stages.policy_gradient import SHOWN, PuzzleRL
from chessrl.stages.probe import gate, solvable
from chessrl.stages.rollout_files import FOLDER, RolloutFiles
from chessrl.stages.runs import folder, inherited, parent, weights_file, working
from chessrl.stages.traces import selected
from chessrl.stages.training import device_of, fit

CURVE_SEED = 0
"""Of the dice of the curve, the same in all runs."""


def rl(run: Run) -> Result:
    """Tune the SFT model on the RL puzzles for `rl.steps` steps."""
    out = folder(run, "rl")
    if (done := out.finished) is not None:
        return done
    config = run.rl
    model = load_model(weights_file(run, "sft"), tokens.VOCABULARY_HASH)
    model.fp32_head = config.fp32_head
    join(run.trainer, group())
    with working(run, out, "rl"), reward_of(run) as reward:
        model.to(device_of(run.trainer))
        with precise(run):
            puzzles = practised(run, model, out, reward)
        generation = generation_of(run, puzzles, reward)
        files = RolloutFiles(out.path / FOLDER, config.keep_rollouts)
        module = PuzzleRL(model, generation, run, curve_of(run, out), files)
        with contextlib.closing(generation):
            seconds = train(run, out, module)
        with precise(run):
            module.measure_curve(config.steps)
        result = result_of(run, module, seconds)
        if group().leads:
            save_model(out.checkpoints / "model.safetensors", model, tokens.VOCABULARY_HASH)
            out.write(result)
    return result


def precise(run: Run) -> torch.autocast:
    """The precision of `trainer.rl_precision`, outside of Lightning's training."""
    half = run.trainer.rl_precision == "bf16-mixed"
    return torch.autocast(run.trainer.accelerator, torch.bfloat16, enabled=half)


def train(run: Run, out: RunFolder, module: PuzzleRL) -> float:
    """All updates; returns the seconds that they took."""
    return fit(
        module,
        lambda step: step,
        label="rl",
        steps=run.rl.steps,
        folder=out,
        config=run.trainer,
        precision=run.trainer.rl_precision,
        checkpoint_every=run.rl.checkpoint_every,
        log_every=1,
        shown={name: name for name in SHOWN[:-1]},
        counted=SHOWN[-1],
        watched=False,
        adds_up=True,
    )


def practised(run: Run, model: Transformer, out: RunFolder, reward: Reward) -> list[Puzzle]:
    """The puzzles of the curriculum, after a look at whether they can teach anything.

    Raises:
        InputError: they cannot, or are too few.
    """
    config = run.rl
    source = parent(run, "prepare").path / "puzzles" / "rl.csv"
    puzzles = selected(read_puzzles(source, SkipReport()), 0, config.max_rating)
    check_judge(puzzles)
    rules = rules_of(config, run.prompt.form)
    if config.curriculum.name == "solvable":
        file = out.path / "solvable.csv"
        puzzles = solvable(model, puzzles, rules, run.seed, config.curriculum.probe, file)
    if len(puzzles) < config.prompts:
        raise InputError(
            f"{source} has {len(puzzles)} puzzles up to rl.max_rating={config.max_rating}"
            f"{' that are solvable' if config.curriculum.name == 'solvable' else ''}, fewer "
            f"than rl.prompts={config.prompts}"
        )
    if config.gate and not any(out.checkpoints.glob("step-*.ckpt")):
        gate(model, puzzles[: config.gate], rules, run.seed, reward)
    return puzzles


@contextlib.contextmanager
def reward_of(run: Run) -> Iterator[Reward]:
    """What episodes earn, with an engine at hand where it is asked.

    Raises:
        InputError: the reward needs an engine and none is configured.
    """
    if run.rl.reward != "engine" or not run.engine.path:
        yield choose(run.rl.reward)
        return
    with Engine(run.engine) as judge:
        yield choose(run.rl.reward, judge)


def generation_of(run: Run, puzzles: Sequence[Puzzle], reward: Reward) -> Generation:
    """Sampling by the scheme of `rl.ahead`."""
    config = run.rl
    curriculum = Curriculum(puzzles, run.seed, config.curriculum)
    given = (curriculum, reward, config, run.prompt.form, run.seed)
    if config.ahead.asynchronous:
        trainer = run.trainer
        return Asynchronous(*given, accelerator=trainer.accelerator, precision=trainer.rl_precision)
    return (Pipeline if config.ahead.scheme == "pipeline" else Alternating)(*given)


def curve_of(run: Run, out: RunFolder) -> Curve:
    """Where pass@k on the test puzzles is measured along the way, played as in training."""
    curve = run.rl.curve
    source = parent(run, "prepare").path / "puzzles" / "test.csv"
    rules = dataclasses.replace(rules_of(run.rl, run.prompt.form), copies=curve.samples)
    puzzles = selected(read_puzzles(source, SkipReport()), curve.puzzles, 0)
    steps = log_spaced(curve.points, run.rl.steps)
    return Curve(out.path / "curve.csv", puzzles, rules, CURVE_SEED, steps)


def result_of(run: Run, module: PuzzleRL, seconds: float) -> Result:
    """What a finished run tells."""
    model, vocabulary = module.model.config, len(tokens.TOKENS)
    result = inherited(run, "rl")
    result.model = model.name
    result.n_params = compute.parameters(model, vocabulary)
    generation = module.generation
    read, episodes = float(generation.sampled), float(generation.sampled_episodes)
    trained = float(module.trained_tokens)
    result.tokens["rl"] = read
    result.flops["rl"] = module.flops
    forward = compute.exact_forward_flops(model, vocabulary, 1, read / episodes)
    result.exact_flops["rl"] = forward * (read + 3 * trained + module.anchored_tokens)
    result.measures = {
        "steps": float(run.rl.steps),
        "episodes": episodes,
        "trained_tokens": trained,
        "puzzles": float(len(module.generation.curriculum.puzzles)),
        "retired": float(len(module.generation.curriculum.retired)),
    }
    if model.experts:
        result.measures["active_params"] = float(compute.active_parameters(model, vocabulary))
    result.seconds = seconds
    return result
