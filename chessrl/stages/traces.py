"""Third stage: the pretrained model's own lines become thoughts to learn from."""

import random
import time
from collections.abc import Sequence

import chess

from chessrl import compute
from chessrl.artifacts import Result
from chessrl.board import tokens
from chessrl.board.prompts import answer_tokens, puzzle_prompt
from chessrl.board.puzzles import Puzzle, read_puzzles
from chessrl.board.skips import SkipReport
from chessrl.board.traces import (
    encode_trace,
    legal_prefix,
    merge,
    truncated_log_normal,
    with_solution,
)
from chessrl.config import InputError, Run, TracesConfig
from chessrl.policy.sampling import Turns, sample
from chessrl.policy.transformer import Transformer
from chessrl.policy.weights import load_model
from chessrl.progress import Meter
from chessrl.stages.batches import DatasetWriter
from chessrl.stages.rollouts import NO_MOVE
from chessrl.stages.runs import folder, inherited, parent, weights_file, working
from chessrl.stages.training import device_of

TOKENS_PER_PLY = 4
"""Enough for nearly every move; a line that needs more is cut a ply short."""
Lines = list[list[chess.Move]]


def traces(run: Run) -> Result:
    """Write SFT documents: prompt, thought, and the solution as the answer.

    Only thought, solver moves and their stop tokens are targets.
    """
    out = folder(run, "traces")
    if (done := out.finished) is not None:
        return done
    config = run.traces
    puzzles = selected(
        read_puzzles(parent(run, "prepare").path / "puzzles" / "sft.csv", SkipReport()),
        config.puzzles,
        config.max_rating,
    )
    model = load_model(weights_file(run, "pretrain"), tokens.VOCABULARY_HASH)
    model.to(device_of(run.trainer))
    result = inherited(run, "traces")
    result.model = model.config.name
    result.n_params = compute.parameters(model.config, len(tokens.TOKENS))
    began = time.monotonic()
    thought_tokens = covered = sampled = 0
    with working(run, out, "traces"), Meter("traces", len(puzzles), "puzzles") as meter:
        writer = DatasetWriter(out.path / "train")
        at_once = max(config.batch // (config.first_moves * config.per_puzzle), 1)
        for first in range(0, len(puzzles), at_once):
            batch = puzzles[first : first + at_once]
            proposed, cost = propose(model, batch, run.prompt.form, config, run.seed, first)
            sampled += cost
            for place, lines in enumerate(proposed):
                puzzle = batch[place // config.per_puzzle]
                rng = random.Random(f"{run.seed}/{first}/{place}")
                ids, targets, thought = document(puzzle, lines, run.prompt.form, config, rng)
                writer.add(ids, targets)
                thought_tokens += thought
                covered += any(line[0].uci() == puzzle.solver_moves[0] for line in lines)
            meter.advance(first + len(batch))
        writer.close()
        result.tokens["traces"] = float(sampled)
        active = compute.active_parameters(model.config, len(tokens.TOKENS))
        result.flops["traces"] = compute.FORWARD * active * float(sampled)
        result.exact_flops["traces"] = compute.exact_forward_flops(
            model.config,
            len(tokens.TOKENS),
            sampled,
            sampled / (writer.documents * config.first_moves),
        )
        result.measures = {
            "documents": float(writer.documents),
            "targets": float(writer.targets),
            "thought_tokens": thought_tokens / writer.documents,
            "solution_proposed": covered / writer.documents,
        }
        result.seconds = time.monotonic() - began
        out.write(result)
    return result


def selected(puzzles: Sequence[Puzzle], count: int, max_rating: int) -> list[Puzzle]:
    """The first `count` puzzles up to a rating, in their order; 0 sets no bound.

    Raises:
        InputError: none is left.
    """
    easy = [puzzle for puzzle in puzzles if not max_rating or puzzle.rating <= max_rating]
    if not easy:
        raise InputError(
            f"none of {len(puzzles)} puzzles is left with max_rating={max_rating}: raise it, or "
            "set it to 0"
        )
    return easy[: count or None]


def propose(
    model: Transformer,
    puzzles: Sequence[Puzzle],
    form: str,
    config: TracesConfig,
    seed: int,
    number: int,
) -> tuple[list[Lines], int]:
    """Lines of play that the model considers in each puzzle, illegal endings cut.

    First moves are sampled, each with a line that goes on from it; the other lines of a first move
    are sampled from the position after it.

    Args:
        number: of the first puzzle; with the seed it decides the samples.

    Returns:
        Lines for each document, those of a puzzle one after the other and no line empty, and the
        tokens that were read and sampled.
    """
    rng = random.Random(f"{seed}/{number}")

    def continued(prompts: list[list[int]], copies: list[int], plies: list[int]) -> list[list[int]]:
        samples = sample(
            model,
            prompts,
            copies,
            Turns(lambda *_: True, lambda *_: None, keep_end=False, stops=NO_MOVE),
            budgets=[TOKENS_PER_PLY * n + 2 for n in plies],
            temperature=config.temperature,
            pad=tokens.PAD,
            seeds=[rng.getrandbits(63) for _ in prompts],
        )
        return [one.tokens for one in samples]

    prompts = [puzzle_prompt(puzzle, form) for puzzle in puzzles]
    boards = [puzzle.board() for puzzle in puzzles]
    rows = config.per_puzzle * config.first_moves
    plies = [_plies(rng, config) for _ in range(rows * len(puzzles))]
    opened = continued(prompts, [rows] * len(puzzles), plies)
    cost = sum(map(len, prompts)) + sum(map(len, opened))
    documents: list[Lines] = [[] for _ in range(config.per_puzzle * len(puzzles))]
    more: list[tuple[Lines, list[chess.Move], chess.Board]] = []
    starts: list[list[int]] = []
    copies: list[int] = []
    for row, (ids, most) in enumerate(zip(opened, plies, strict=True)):
        board, lines = boards[row // rows], documents[row // config.first_moves]
        if line := legal_prefix(board, ids)[:most]:
            lines.append(line)
            others = _lines(rng, config) - 1
            if others:
                after = board.copy(stack=False)
                starts.append(prompts[row // rows] + tokens.push_encoded(after, line[0]))
                copies.append(others)
                more += [(lines, line[:1], after)] * others
    if more:
        plies = [_plies(rng, config) for _ in more]
        rest = continued(starts, copies, [max(most - 1, 1) for most in plies])
        cost += sum(map(len, starts)) + sum(map(len, rest))
        for (lines, first, after), ids, most in zip(more, rest, plies, strict=True):
            lines.append(first + legal_prefix(after, ids)[: most - 1])
    return documents, cost


def _lines(rng: random.Random, config: TracesConfig) -> int:
    return truncated_log_normal(
        rng, config.lines_mean, config.lines_sigma, config.lines_min, config.lines_max
    )


def _plies(rng: random.Random, config: TracesConfig) -> int:
    return truncated_log_normal(
        rng, config.plies_mean, config.plies_sigma, config.plies_min, config.plies_max
    )


def document(
    puzzle: Puzzle, lines: Lines, form: str, config: TracesConfig, rng: random.Random
) -> tuple[list[int], list[bool], int]:
    """Tokens and targets of one SFT document, and the length of its thought."""
    solution = [chess.Move.from_uci(uci) for uci in puzzle.moves[1:]]
    board = puzzle.board()
    thought = encode_trace(board, merge(with_solution(lines, solution, _plies(rng, config), rng)))
    prompt = puzzle_prompt(puzzle, form)
    answer, ours = answer_tokens(puzzle)
    ids = prompt + thought + answer
    if tokens.ID["<unk>"] in ids:
        raise ValueError(f"puzzle {puzzle.id}: an unknown token in an SFT document")
    return ids, [False] * len(prompt) + [True] * len(thought) + ours, len(thought)
