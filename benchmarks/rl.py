"""Seconds of an RL step and what they go to, and rollouts/s against TRL's GRPOTrainer.

    pip install -c constraints.txt -e '.[benchmark]'   # TRL and what it needs
    python benchmarks/rl.py
    python benchmarks/rl.py --contenders ours --rounds 1 --steps 20

The first call makes the model, a few minutes: a short pretraining and SFT on the starter, so that
it writes real answers; it stays in `--outputs`. Ours is the RL stage as it stands, in a folder of
its own, and its `metrics.csv`. TRL trains the same weights, exported, with the same loss (GRPO over
each sample, clip 0.2, no KL, one update a batch), rate, puzzles in the same order, samples of each,
tokens at most, stop tokens and judge, by its own `generate` with a cache. It plays one turn, ours
whole puzzles, which is the more. The rate is so low that the model stays what it is: every step
plays with the same policy.

Each contender's turn in a round is a process of its own, whose first step is not counted.

`ours` leaves out of the update the groups that agree, whose gradient is 0; `ours-all` computes
them. TRL: `trl-fp32`, `trl-bf16` (autocast), either with `-static` (a cache of fixed size) or
`-memory` (this project's handling of memory).
"""

import argparse
import csv
import importlib.metadata
import importlib.util
import itertools
import multiprocessing
import os
import platform
import statistics
import tempfile
import time
import warnings
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from hydra import compose, initialize_config_dir

from chessrl.board import tokens
from chessrl.board.episodes import Episode, play_turn
from chessrl.board.prompts import puzzle_prompt
from chessrl.board.puzzles import Puzzle, read_puzzles
from chessrl.board.skips import SkipReport
from chessrl.config import Run, parse
from chessrl.policy.machine import keep_memory
from chessrl.progress import silence
from chessrl.sources import resolve
from chessrl.stages.curriculum import Curriculum
from chessrl.stages.pipeline import perform
from chessrl.stages.rl import rl
from chessrl.stages.runs import folder, parent, with_stage
from chessrl.stages.traces import selected
from chessrl.stages.training import on_this_machine, quiet

CONF = Path(__file__).resolve().parents[1] / "conf"
BUDGET = ("run=benchmark", "pretrain.tokens=2e6", "traces.per_puzzle=1")
RATE = 1e-6
PARTS = ("prefill", "decode", "judging", "update")
CONTENDERS = ("ours", "ours-all", "trl-fp32", "trl-bf16")
NOTHING_SKIPPED = "rl.loss.entropy=1e-12"
"""With a bonus for entropy every episode has a gradient; one so small changes nothing else."""


@dataclass
class Step:
    """One step that was timed."""

    seconds: float
    parts: dict[str, float]
    """Seconds by what they went to; the rest is the trainer's own."""
    tokens: float
    """Mean tokens that the model wrote in an episode."""
    mixed: float
    """Share of groups that disagree, the only ones with a gradient."""


def configured(*overrides: str) -> Run:
    """The configuration that the command line would make of these."""
    with initialize_config_dir(str(CONF), version_base="1.3"):
        run = on_this_machine(parse(compose("config", list(overrides))))
    return replace(run, data=resolve(run.data, fetch=False))


def our_steps(settings: Sequence[str], steps: int) -> list[Step]:
    """The RL stage in a folder of its own, its first step left out."""
    with tempfile.TemporaryDirectory() as out:
        plain = ("rl.curve.points=0", "rl.gate=0", f"rl.steps={steps + 1}", f"out={out}/rl")
        rl(configured(*settings, *plain, "stage=rl"))
        with open(f"{out}/rl/metrics.csv", newline="", encoding="utf-8") as file:
            rows = [{k: float(v or "nan") for k, v in row.items()} for row in csv.DictReader(file)]
    return [
        Step(
            row["seconds"] - before["seconds"],
            {part: row[f"seconds_{part}"] for part in PARTS},
            row["response_tokens"],
            row["mixed"],
        )
        for before, row in itertools.pairwise(rows)
    ]


def practised(run: Run, count: int) -> list[Puzzle]:
    """The first puzzles that the RL stage takes, in its order."""
    source = parent(run, "prepare").path / "puzzles" / "rl.csv"
    puzzles = selected(read_puzzles(source, SkipReport()), 0, run.rl.max_rating)
    groups = Curriculum(puzzles, run.seed, run.rl.curriculum).take(count)
    return [group.puzzle for group in groups]


def first_move(puzzle: Puzzle, completion: Sequence[int]) -> float:
    """1 where the judge takes the first turn for right; it ends with `<call_env>`."""
    if completion[-1] != tokens.CALL_ENV:
        return 0.0
    episode = Episode(puzzle)
    play_turn(episode, list(completion[:-1]))
    return float(episode.outcome.turns[0].right)


def their_steps(settings: Sequence[str], steps: int, kind: str, microbatch: int) -> list[Step]:
    """TRL's trainer on the exported model, its first step left out."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    import transformers
    from datasets import Dataset
    from trl import GRPOConfig, GRPOTrainer

    warnings.simplefilter("ignore", FutureWarning)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    if "memory" in kind:
        keep_memory()
    run = configured(*settings)
    config = run.rl
    puzzles = practised(run, (steps + 1) * config.prompts)
    exported = folder(replace(run, evaluate=replace(run.evaluate, of="sft")), "export").path
    seconds = {"generate": 0.0, "judging": 0.0}
    ends: list[tuple[float, dict[str, float]]] = []

    def judge(completion_ids: list[list[int]], place: list[int], **_: object) -> list[float]:
        began = time.perf_counter()
        pairs = zip(place, completion_ids, strict=True)
        rewards = [first_move(puzzles[where], ids) for where, ids in pairs]
        seconds["judging"] += time.perf_counter() - began
        return rewards

    class Clock(transformers.TrainerCallback):
        def on_step_end(self, *_: object, **__: object) -> None:
            ends.append((time.perf_counter(), dict(seconds)))

    prompts = [puzzle_prompt(puzzle, run.prompt.form) for puzzle in puzzles]
    with tempfile.TemporaryDirectory() as out:
        trainer = GRPOTrainer(
            transformers.AutoModelForCausalLM.from_pretrained(exported, dtype=torch.float32),
            judge,
            GRPOConfig(
                output_dir=out,
                per_device_train_batch_size=microbatch,
                gradient_accumulation_steps=config.prompts * config.group_size // microbatch,
                num_generations=config.group_size,
                max_completion_length=config.max_new_tokens,
                temperature=config.temperature,
                cache_implementation="static" if "static" in kind else None,
                max_steps=steps + 1,
                learning_rate=RATE,
                lr_scheduler_type="constant",
                adam_beta1=config.optim.beta1,
                adam_beta2=config.optim.beta2,
                weight_decay=config.optim.weight_decay,
                max_grad_norm=config.optim.clip,
                beta=0.0,
                loss_type="grpo",
                epsilon=config.loss.low,
                scale_rewards="group",
                shuffle_dataset=False,
                gradient_checkpointing=False,
                bf16="bf16" in kind,
                use_cpu=True,
                dataloader_pin_memory=False,
                logging_steps=1,
                save_strategy="no",
                report_to="none",
                disable_tqdm=True,
                seed=run.seed,
            ),
            train_dataset=Dataset.from_dict(
                {
                    "prompt": [" ".join(tokens.TOKENS[i] for i in ids) for ids in prompts],
                    "place": list(range(len(prompts))),
                }
            ),
            processing_class=transformers.AutoTokenizer.from_pretrained(exported),
            callbacks=[Clock()],
        )
        trainer.remove_callback(transformers.PrinterCallback)
        generate = trainer.model.generate

        def timed(*args: object, **more: object) -> torch.Tensor:
            began = time.perf_counter()
            made = generate(*args, **more)
            seconds["generate"] += time.perf_counter() - began
            return made

        trainer.model.generate = timed
        trainer.train()
    told = [row for row in trainer.state.log_history if "completions/mean_length" in row]
    return [
        Step(
            end - began,
            {name: spent[name] - earlier[name] for name in spent},
            row["completions/mean_length"],
            1 - row["frac_reward_zero_std"],
        )
        for (began, earlier), (end, spent), row in zip(ends[:-1], ends[1:], told[1:], strict=True)
    ]


def turn(kind: str, settings: Sequence[str], steps: int, microbatch: int) -> list[Step]:
    """A contender's turn, in the process that is its own."""
    quiet()
    silence()
    if kind.startswith("trl"):
        return their_steps(settings, steps, kind, microbatch)
    return our_steps([*settings, *([NOTHING_SKIPPED] if kind == "ours-all" else [])], steps)


def race(
    kinds: Sequence[str], settings: Sequence[str], rounds: int, steps: int, microbatch: int
) -> dict[str, list[list[Step]]]:
    """The steps of each contender, round by round."""
    taken: dict[str, list[list[Step]]] = {kind: [] for kind in kinds}
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=spawn, max_tasks_per_child=1) as pool:
        for number in range(rounds):
            for kind in kinds:
                made = pool.submit(turn, kind, settings, steps, microbatch).result()
                taken[kind].append(made)
                each = ", ".join(f"{step.seconds:.2f}" for step in made)
                print(f"round {number + 1}, {kind}: {each} s", flush=True)
    return taken


def report(taken: dict[str, list[list[Step]]], episodes: int) -> None:
    """A row for each contender; ratios are to the fastest of TRL's, the median over the rounds."""

    def speed(steps: Sequence[Step]) -> float:
        return episodes / statistics.median(step.seconds for step in steps)

    rates = {kind: [speed(steps) for steps in rounds] for kind, rounds in taken.items()}
    theirs = [kind for kind in rates if kind.startswith("trl")]
    peer = max(theirs, key=lambda kind: statistics.median(rates[kind]), default=None)
    shares: list[str] = []
    print(
        "\n| contender | s/step | least-most | prefill | decode | judging | update | rest "
        "| tokens | mixed | rollouts/s | ratio |\n|" + "---|" * 12
    )
    for kind, rounds in taken.items():
        steps = [step for one in rounds for step in one]
        whole = [step.seconds for step in steps]
        parts = {
            name: f"{statistics.median(step.parts[name] for step in steps):.2f}"
            for name in steps[0].parts
        }
        rest = statistics.median(step.seconds - sum(step.parts.values()) for step in steps)
        if "generate" in parts:
            parts = {"prefill": "", "decode": f"{parts['generate']} (both)", "update": ""} | parts
        else:
            share = statistics.median(step.parts["judging"] / step.seconds for step in steps)
            shares.append(f"judging is {share:.1%} of a step of `{kind}`")
        ratio = "" if peer is None else f"{_ratio(rates[kind], rates[peer]):.2f}"
        cells = [
            f"`{kind}`",
            f"{statistics.median(whole):.2f}",
            f"{min(whole):.2f}-{max(whole):.2f}",
            *(parts[name] for name in PARTS),
            f"{rest:.2f}",
            f"{statistics.mean(step.tokens for step in steps):.1f}",
            f"{statistics.mean(step.mixed for step in steps):.0%}",
            f"{statistics.median(rates[kind]):.1f}",
            ratio,
        ]
        print(f"| {' | '.join(cells)} |")
    print("", *shares, sep="\n")


def _ratio(mine: Sequence[float], other: Sequence[float]) -> float:
    return statistics.median(a / b for a, b in zip(mine, other, strict=True))


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--model", default="1m")
    parser.add_argument("--prompts", type=int, default=32, help="puzzles in a step")
    parser.add_argument("--contenders", nargs="+", default=list(CONTENDERS))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=2, help="timed in a turn")
    parser.add_argument("--microbatch", type=int, default=64, help="rows in TRL's backward pass")
    parser.add_argument("--outputs", default="outputs")
    parser.add_argument("settings", nargs="*", help="of this project, such as rl.group_size=8")
    given = parser.parse_args()
    known = {*CONTENDERS, *(f"{a}-{b}" for a in CONTENDERS[2:] for b in ("static", "memory"))}
    if unknown := set(given.contenders) - known:
        parser.error(f"no such contender: {', '.join(sorted(unknown))}; one of {sorted(known)}")
    missing = any(kind.startswith("trl") for kind in given.contenders) and not _has_trl()
    if missing:
        parser.error("TRL is not here: pip install -c constraints.txt -e '.[benchmark]'")
    settings = [
        f"model={given.model}", f"outputs={given.outputs}", *BUDGET,
        f"rl.prompts={given.prompts}", f"rl.optim.lr={RATE}", "evaluate.of=sft", *given.settings,
    ]  # fmt: skip
    quiet()
    run = configured(*settings)
    for stage in ("prepare", "pretrain", "traces", "sft", "export"):
        perform(with_stage(run, stage), stage)
    versions = ", ".join(
        f"{name} {importlib.metadata.version(name)}"
        for name in ("torch", *(("transformers", "trl") if _has_trl() else ()))
    )
    episodes = given.prompts * run.rl.group_size
    print(
        f"{platform.machine()}, {os.cpu_count()} cores, {torch.get_num_threads()} threads; "
        f"{versions}\n{given.model}, {given.prompts} prompts x {run.rl.group_size} episodes of at "
        f"most {run.rl.max_new_tokens} tokens",
        flush=True,
    )
    taken = race(given.contenders, settings, given.rounds, given.steps, given.microbatch)
    report(taken, episodes)


def _has_trl() -> bool:
    return importlib.util.find_spec("trl") is not None


if __name__ == "__main__":
    main()
