"""The update of RL in Lightning's loop: play and judge, give credit, train, watch."""

import copy
import time
from collections.abc import Sequence
from typing import Any

import lightning as L
import torch
from lightning.pytorch.utilities.types import OptimizerLRScheduler
from torch import Tensor

from chessrl import compute
from chessrl.board import tokens
from chessrl.config import InputError, Run
from chessrl.policy.experts import counts_of, use_of_experts
from chessrl.policy.optim import build_optimizer, build_schedule, rates_of
from chessrl.policy.transformer import Transformer
from chessrl.progress import say
from chessrl.stages.alarms import Alarms
from chessrl.stages.curve import Curve
from chessrl.stages.generation import Generation
from chessrl.stages.group import group, reduced
from chessrl.stages.measures import measures_of
from chessrl.stages.rollout_files import RolloutFiles
from chessrl.stages.rollouts import Rollout
from chessrl.stages.training import check_finite
from chessrl.stages.update import (
    Credit,
    Objective,
    as_rows,
    credit_of,
    episode_divergence,
    objective,
    parts_of,
)

SHOWN = ("reward", "mixed", "response_tokens", "rollout_tokens")
"""Measures that go with the progress, the last of them being what its speed is told in."""


class PuzzleRL(L.LightningModule):
    """Plays a batch of puzzles, gives credit, and makes one update."""

    def __init__(
        self,
        model: Transformer,
        generation: Generation,
        run: Run,
        curve: Curve,
        files: RolloutFiles,
    ) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.model, self.config = model, run.rl
        self.generation, self.curve, self.files = generation, curve, files
        self.alarms = Alarms(run.trainer.rl_precision)
        self.has_reference = self.config.kl.estimator != "none"
        # in a list, to be no part of the module
        self._reference = [copy.deepcopy(model).eval() if self.has_reference else None]
        self.trained_tokens = 0
        """Tokens of the episodes that took part in an update so far."""
        self.anchored_tokens = 0
        """Tokens that the reference has read so far."""

    def training_step(self, step: int, _: int) -> None:
        """Play and judge, give credit, update."""
        measures = self.measure_curve(step)
        rollouts = self.generation.batch(self.model, step)
        began = time.perf_counter()
        divergence = self._divergence(rollouts)
        credit = credit_of(rollouts, self.config, divergence)
        if group().leads:
            self.files.write(step, rollouts, credit.advantage.tolist())
        self._count(rollouts, credit)
        if divergence is not None:
            measures["kl"] = float(divergence.sum()) / sum(sum(r.sample.sampled) for r in rollouts)
        measures |= measures_of(rollouts, credit, step) | self._update(rollouts, credit, step)
        seconds = dict(self.generation.seconds) | {"update": time.perf_counter() - began}
        measures |= {f"seconds_{name}": value for name, value in seconds.items()}
        measures |= {"rollout_tokens": float(self.generation.sampled), "flops": self.flops}
        self._log(step, measures)
        self._refresh_reference(step + 1)
        self._watch(step, measures)

    def measure_curve(self, step: int) -> dict[str, float]:
        """pass@k on the test puzzles after so many updates, where the curve has a point there."""
        return self.curve.measure(self.model, step, self.generation.sampled, self.flops)

    @property
    def flops(self) -> float:
        """FLOPs so far by the study's accounting: all tokens are sampled, some are trained on."""
        active = compute.active_parameters(self.model.config, len(tokens.TOKENS))
        sampled = self.generation.sampled
        return compute.rl_flops(active, sampled, self.trained_tokens, self.anchored_tokens)

    def _count(self, rollouts: Sequence[Rollout], credit: Credit) -> None:
        lengths = torch.tensor([one.read for one in rollouts])
        trained = int(lengths[credit.counted].sum())
        self.trained_tokens += trained
        if self.has_reference:
            in_loss = self.config.kl.place == "loss"
            self.anchored_tokens += trained if in_loss else int(lengths.sum())

    def _divergence(self, rollouts: Sequence[Rollout]) -> Tensor | None:
        if not self.has_reference or self.config.kl.place != "reward":
            return None
        reference = self._reference[0].to(self.device)
        return episode_divergence(reference, rollouts, self.config, self.device)

    def _update(self, rollouts: Sequence[Rollout], credit: Credit, step: int) -> dict[str, Any]:
        """Take one step on the whole batch, whatever the size of a microbatch.

        Episodes whose gradient is exactly 0 are not computed. The processes of a group share the
        microbatches out and add up their gradients.
        """
        config, place = self.config, group()
        live = credit.live.nonzero().flatten().tolist()
        parts = parts_of(rollouts, live, config.microbatch_tokens)
        optimizer, scheduler = self.optimizers(), self.lr_schedulers()
        self.model.train()
        objectives: list[Objective] = []
        used: list[Tensor] = []
        for part in parts[place.rank :: place.size]:
            rows = as_rows(rollouts, part, credit.advantage, credit.weight).to(self.device)
            routes: list[Tensor] = []
            one = objective(self.model, self._anchor(), rows, config, routes)
            self.manual_backward(-one.value)
            one.value = one.value.detach()
            objectives.append(one)
            if routes:
                used.append(self._counts(routes, rows.inputs))
        measures: dict[str, Any] = rates_of(optimizer)
        if parts:
            measures |= self._told(objectives)
            check_finite(measures["loss"], "loss", "rl", step)
            self._add_up_gradients()
            norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), config.optim.clip)
            check_finite(norm, "gradient", "rl", step)
            measures["gradient_norm"] = norm
        if used:
            measures |= use_of_experts(torch.stack(used).sum(0))
        optimizer.step()
        optimizer.zero_grad()
        scheduler.step()
        return measures

    def _add_up_gradients(self) -> None:
        if group().size == 1:
            return
        for parameter in self.model.parameters():
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
            reduced(parameter.grad, "sum")

    def _told(self, objectives: Sequence[Objective]) -> dict[str, Tensor]:
        """Loss, ratios and divergence over the microbatches of all processes."""
        none = torch.zeros(0, device=self.device)
        ratio = torch.cat([none, *(one.ratio for one in objectives)])
        clipped = torch.cat([none, *(one.clipped.float() for one in objectives)])
        kl = torch.cat([none, *(one.kl for one in objectives if one.kl is not None)])
        value = sum((one.value for one in objectives), torch.zeros((), device=self.device))
        sums = torch.stack(
            [value, ratio.sum(), clipped.sum(), kl.sum(), ratio.new_tensor(len(ratio))]
        )
        value, ratios, bounded, divergence, count = reduced(sums, "sum")
        infinite = ratio.new_tensor([float("inf")])
        measures = {
            "loss": -value,
            "ratio_min": reduced(torch.cat([infinite, ratio]).min(), "min"),
            "ratio_mean": ratios / count,
            "ratio_max": reduced(torch.cat([-infinite, ratio]).max(), "max"),
            "clipped": bounded / count,
        }
        return measures | ({} if self._anchor() is None else {"kl": divergence / count})

    @torch.no_grad()
    def _counts(self, routes: list[Tensor], inputs: Tensor) -> Tensor:
        return counts_of(routes, self.model.config.experts_per_token, inputs != tokens.PAD)

    def _anchor(self) -> Transformer | None:
        """The reference, where its divergence is part of the loss."""
        if not self.has_reference or self.config.kl.place != "loss":
            return None
        return self._reference[0].to(self.device)

    def _refresh_reference(self, done: int) -> None:
        every = self.config.kl.refresh
        if self.has_reference and every and done % every == 0:
            self._reference[0].load_state_dict(self.model.state_dict())

    def _log(self, step: int, measures: dict[str, Any]) -> None:
        """Write what this step has; Lightning's own log would repeat what an earlier one had."""
        for logger in self.loggers:
            logger.log_metrics({name: float(value) for name, value in measures.items()}, step)
        self.log_dict({name: measures[name] for name in SHOWN}, logger=False)

    def _watch(self, step: int, measures: dict[str, Any]) -> None:
        for sign in self.alarms.look(step, measures):
            if self.config.alarms == "stop":
                raise InputError(
                    f"rl: step {step + 1}: {sign}. The last checkpoint is whole; "
                    "rl.alarms=say goes on all the same"
                )
            say(f"rl: step {step + 1}: {sign}")

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """What a run needs to go on exactly, beside weights and optimiser."""
        refreshed = self.has_reference and self.config.kl.refresh
        checkpoint["rl"] = {
            "generation": self.generation.state(),
            "alarms": self.alarms.state(),
            "trained_tokens": self.trained_tokens,
            "anchored_tokens": self.anchored_tokens,
            "reference": self._reference[0].state_dict() if refreshed else None,
        }

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Go on from there."""
        state = checkpoint["rl"]
        self.generation.load(state["generation"])
        self.alarms.load(state["alarms"])
        self.trained_tokens = state["trained_tokens"]
        self.anchored_tokens = state["anchored_tokens"]
        if state["reference"] is not None:
            self._reference[0].load_state_dict(state["reference"])

    def configure_optimizers(self) -> OptimizerLRScheduler:
        """Optimiser and schedule of the config."""
        optimizer = build_optimizer(self.model, self.config.optim)
        return [optimizer], [build_schedule(optimizer, self.config.optim, self.config.steps)]
