"""Third stage: the pretrained model's own lines become thoughts to learn from."""

import random
import time
from collections.abc import Sequence

import chess

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
from chessrl.config import Run, TracesConfig
from chessrl.policy.sampling import Turns, sample
from chessrl.policy.transformer import Transformer
from chessrl.policy.weights import load_model
from chessrl.progress import Meter
from chessrl.stages.batches import DatasetWriter
from chessrl.stages.rollouts import NO_MOVE, seeded
from chessrl.stages.runs import folder, inherited, parent, weights_file

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
    result = inherited(run, "traces")
    result.model = model.config.name
    began = time.monotonic()
    thought_tokens = covered = sampled = 0
    with out.started(run, {"stage": "traces"}), Meter("traces", len(puzzles), "puzzles") as meter:
        writer = DatasetWriter(out.path / "train")
        at_once = max(config.batch // config.first_moves, 1)
        for first in range(0, len(puzzles), at_once):
            batch = puzzles[first : first + at_once]
            proposed, cost = propose(model, batch, run.prompt.form, config, run.seed, first)
            sampled += cost
            for puzzle, lines in zip(batch, proposed, strict=True):
                ids, targets, thought = document(puzzle, lines, run.prompt.form, config, run.seed)
                writer.add(ids, targets)
                thought_tokens += thought
                covered += any(line[0].uci() == puzzle.solver_moves[0] for line in lines)
            meter.advance(first + len(batch))
        writer.close()
        result.tokens["traces"] = float(sampled)
        result.flops["traces"] = 2.0 * result.n_params * sampled
        result.measures = {
            "documents": float(writer.documents),
            "targets": float(writer.targets),
            "thought_tokens": thought_tokens / len(puzzles),
            "solution_proposed": covered / len(puzzles),
        }
        result.seconds = time.monotonic() - began
        out.write(result)
    return result


def selected(puzzles: Sequence[Puzzle], count: int, max_rating: int) -> list[Puzzle]:
    """The first `count` puzzles up to a rating, in their order; 0 sets no bound."""
    easy = [puzzle for puzzle in puzzles if not max_rating or puzzle.rating <= max_rating]
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

    First moves are sampled, then from each legal one a number of lines.

    Args:
        number: of the first puzzle; with the seed it decides the samples.

    Returns:
        Lines of each puzzle, none of them empty, and the tokens that were read and sampled.
    """
    rng = random.Random(f"{seed}/{number}")
    generator = seeded(seed, number)

    def continued(prompts: list[list[int]], copies: list[int], plies: list[int]) -> list[list[int]]:
        samples = sample(
            model,
            prompts,
            copies,
            Turns(lambda _, token: token in NO_MOVE, lambda *_: None, keep_end=False),
            budgets=[TOKENS_PER_PLY * n + 2 for n in plies],
            temperature=config.temperature,
            pad=tokens.PAD,
            generator=generator,
        )
        return [one.tokens for one in samples]

    def drawn(name: str) -> int:
        mean, sigma, low, high = (
            getattr(config, f"{name}_{part}") for part in ("mean", "sigma", "min", "max")
        )
        return truncated_log_normal(rng, mean, sigma, low, high)

    prompts = [puzzle_prompt(puzzle, form) for puzzle in puzzles]
    copies = [config.first_moves] * len(puzzles)
    opened = continued(prompts, copies, [1] * sum(copies))
    cost = sum(map(len, prompts)) + sum(map(len, opened))
    lines: list[Lines] = [[] for _ in puzzles]
    owners, starts, counts, plies = [], [], [], []
    for row, ids in enumerate(opened):
        owner = row // config.first_moves
        board = puzzles[owner].board()
        if first := legal_prefix(board, ids)[:1]:
            owners.append(owner)
            starts.append((board, prompts[owner] + tokens.encode_move(board, first[0]), first))
            counts.append(drawn("lines"))
            plies += [drawn("plies") for _ in range(counts[-1])]
    if not starts:
        return lines, cost
    rows = [place for place, count in enumerate(counts) for _ in range(count)]
    rest = continued([ids for _, ids, _ in starts], counts, [max(n - 1, 1) for n in plies])
    cost += sum(len(ids) for _, ids, _ in starts) + sum(map(len, rest))
    for place, n, ids in zip(rows, plies, rest, strict=True):
        board, _, first = starts[place]
        after = board.copy(stack=False)
        after.push(first[0])
        lines[owners[place]].append(first + legal_prefix(after, ids)[: n - 1])
    return lines, cost


def document(
    puzzle: Puzzle, lines: Lines, form: str, config: TracesConfig, seed: int
) -> tuple[list[int], list[bool], int]:
    """Tokens and targets of one SFT document, and the length of its thought."""
    rng = random.Random(f"{seed}/{puzzle.id}")
    plies = truncated_log_normal(
        rng, config.plies_mean, config.plies_sigma, config.plies_min, config.plies_max
    )
    solution = [chess.Move.from_uci(uci) for uci in puzzle.moves[1:]]
    board = puzzle.board()
    thought = encode_trace(board, merge(with_solution(lines, solution, plies, rng)))
    prompt = puzzle_prompt(puzzle, form)
    answer, ours = answer_tokens(puzzle)
    ids = prompt + thought + answer
    if tokens.ID["<unk>"] in ids:
        raise ValueError(f"puzzle {puzzle.id}: an unknown token in an SFT document")
    return ids, [False] * len(prompt) + [True] * len(thought) + ours, len(thought)
