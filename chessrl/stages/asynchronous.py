"""PipelineRL with a process that samples on its own while this one trains.

The trainer publishes its weights after every update; the sampler takes them up between tokens, in
the middle of sequences. In step s the batch of step s + k is asked for, so that no batch begins
with weights that will be more than k updates old. What is sampled with which weights depends on the
speed of both: for k > 0 a seed does not decide the run. With k = 0 it is on-policy, to the bit.
"""

import os
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.queues import Queue
from queue import SimpleQueue
from typing import Any

import torch
import torch.multiprocessing as mp
from torch import Tensor

from chessrl.board.puzzles import Puzzle
from chessrl.config import ModelConfig
from chessrl.policy.transformer import Transformer
from chessrl.stages.generation import Source, by_id
from chessrl.stages.group import end_with
from chessrl.stages.rollouts import Group, Play, Rollout, Rules

STRIDE = 8
"""Tokens of each row between two looks for newer weights."""
STUCK = 60.0
"""Seconds after which the weights count as never given back; copying them takes a moment."""


@dataclass(frozen=True)
class Answer:
    """A sampled batch, or what went wrong."""

    rollouts: list[dict[str, Any]]
    seconds: dict[str, float]
    error: str = ""


@dataclass(frozen=True)
class Shared:
    """Weights that both processes see, and how many updates they have had."""

    weights: dict[str, Tensor]
    version: Any
    """A shared integer, with the lock that guards the weights."""

    def publish(self, model: Transformer, version: int) -> None:
        """Give the weights of a model to the sampler."""
        lock = self.version.get_lock()
        if not lock.acquire(timeout=STUCK):
            raise RuntimeError("the sampling process ended, or hangs, while it took weights")
        try:
            for name, value in model.state_dict().items():
                self.weights[name].copy_(value)
            self.version.value = version
        finally:
            lock.release()

    def take(self, model: Transformer, version: int) -> int:
        """Load weights that are newer than a version; returns the version that the model has."""
        with self.version.get_lock():
            if self.version.value != version:
                model.load_state_dict(self.weights)
            return self.version.value


class Asynchronous(Source):
    """Asks for batches k steps ahead; closes its process at the end."""

    def __init__(self, *args: Any, accelerator: str, precision: str) -> None:
        super().__init__(*args)
        self.where = accelerator, precision
        self.asked: list[list[Group]] = []
        """Batches that are asked for and not yet used, in their order."""
        self.started = 0
        self._process: mp.Process | None = None

    def batch(self, model: Transformer, step: int) -> list[Rollout]:
        """The batch of this step; the one of k steps later is asked for."""
        config = self.config
        self.seconds.clear()
        if self._process is None:
            self._open(model, step)
        self._shared.publish(model, step)
        while self.started < min(step + config.ahead.k + 1, config.steps):
            self.asked.append(self.curriculum.take(config.prompts))
            self._requests.put(self.asked[-1])
            self.started += 1
        answer = self._answer()
        self.asked.pop(0)
        self.seconds.update(answer.seconds)
        puzzles = by_id(self.curriculum.puzzles)
        rollouts = [Rollout.from_plain(fields, puzzles) for fields in answer.rollouts]
        rollouts = self.taken(self.paid(rollouts))
        self.curriculum.learn(rollouts)
        return rollouts

    def _open(self, model: Transformer, step: int) -> None:
        context = mp.get_context("spawn")
        weights = {name: value.cpu().clone() for name, value in model.state_dict().items()}
        for value in weights.values():
            value.share_memory_()
        self._shared = Shared(weights, context.Value("i", step))
        self._requests = context.Queue()
        self._requests.cancel_join_thread()
        self._answers, answers = context.Pipe(duplex=False)
        threads = max((os.cpu_count() or 1) // 2, 1)
        torch.set_num_threads(min(torch.get_num_threads(), threads))
        sampler = (model.config, len(model.head.weight), model.fp32_head, self.rules, self.seed)
        places = (self._shared, self._requests, answers)
        arguments = (*sampler, *self.where, torch.get_num_threads(), *places)
        self._process = context.Process(target=serve, args=arguments, daemon=True)
        self._process.start()
        answers.close()  # the sampler holds the only one, so that its end is seen
        for groups in self.asked:
            self._requests.put(groups)

    def _answer(self) -> Answer:
        try:
            answer = self._answers.recv()
        except (EOFError, OSError):
            self._process.join()
            status = self._process.exitcode
            raise RuntimeError(f"the sampling process ended ({status})") from None
        if answer.error:
            raise RuntimeError(f"the sampling process failed: {answer.error}")
        return answer

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.kill()
            self._process.join()
            self._process = None

    def state(self) -> dict[str, Any]:
        """Batches that are asked for are asked for again: their episodes so far are lost."""
        asked = [[(one.number, one.puzzle.id) for one in groups] for groups in self.asked]
        return super().state() | {"started": self.started, "asked": asked}

    def load(self, state: Mapping[str, Any]) -> None:
        super().load(state)
        puzzles: dict[str, Puzzle] = by_id(self.curriculum.puzzles)
        self.started = state["started"]
        self.asked = [
            [Group(number, puzzles[name]) for number, name in groups] for groups in state["asked"]
        ]


def serve(
    config: ModelConfig,
    vocabulary: int,
    fp32_head: bool,
    rules: Rules,
    seed: int,
    accelerator: str,
    precision: str,
    threads: int,
    shared: Shared,
    requests: "Queue[list[Group]]",
    answers: Connection,
) -> None:
    """The sampling process: batch after batch, with the newest weights there are."""
    threading.Thread(target=end_with, args=(os.getppid(),), daemon=True).start()
    torch.set_num_threads(threads)
    outbox: SimpleQueue[Answer] = SimpleQueue()
    threading.Thread(target=_send, args=(outbox, answers), daemon=True).start()
    try:
        several = accelerator == "cuda" and torch.cuda.device_count() > 1
        device = torch.device("cuda:1" if several else accelerator)
        model = Transformer(config, vocabulary).to(device)
        model.fp32_head = fp32_head
        half = torch.autocast(device.type, torch.bfloat16, enabled=precision == "bf16-mixed")
        version = -1
        while True:
            groups = requests.get()
            with half:
                version = shared.take(model, version)
                play = Play(model, groups, rules, seed, version)
                while not play.done:
                    play.advance(model, STRIDE)
                    version = shared.take(model, version)
            rollouts = [rollout.plain() for rollout in play.rollouts()]
            outbox.put(Answer(rollouts, play.seconds))
    except Exception as error:
        answers.send(Answer([], {}, f"{type(error).__name__}: {error}"))


def _send(outbox: "SimpleQueue[Answer]", answers: Connection) -> None:
    """Hand answers over while the next batch is sampled: the trainer may be long in reading."""
    while True:
        answers.send(outbox.get())
