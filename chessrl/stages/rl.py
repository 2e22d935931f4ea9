"""Fifth stage: the policy answers puzzles and python-chess marks the answers.

GRPO (arXiv 2402.03300) as in the chess study: the advantage of an answer is taken over its group,
the ratio is clipped, KL to the SFT policy is optional. One update per batch of fresh episodes. With
experts the load-balancing loss is left out, so that a group that agrees teaches nothing.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import lightning as L
import numpy as np
import torch
from lightning.pytorch.utilities.types import OptimizerLRScheduler
from torch import Tensor

from chessrl import compute
from chessrl.artifacts import Result
from chessrl.board import tokens
from chessrl.board.episodes import ENDINGS
from chessrl.board.puzzles import Puzzle, read_puzzles
from chessrl.board.skips import SkipReport
from chessrl.config import InputError, RlConfig, Run
from chessrl.policy.experts import counts_of, use_of_experts
from chessrl.policy.losses import (
    clipped_surrogate,
    group_advantage,
    kl_k3,
    sample_mean,
    token_logprobs,
)
from chessrl.policy.optim import build_optimizer, build_schedule, rates_of
from chessrl.policy.transformer import Transformer
from chessrl.policy.weights import load_model, save_model
from chessrl.stages.rollouts import Rollout, play, seeded
from chessrl.stages.runs import folder, inherited, parent, weights_file, working
from chessrl.stages.traces import selected
from chessrl.stages.training import check_finite, fit


def rl(run: Run) -> Result:
    """Tune the SFT model on the RL puzzles for `rl.steps` steps."""
    out = folder(run, "rl")
    if (done := out.finished) is not None:
        return done
    config = run.rl
    source = parent(run, "prepare").path / "puzzles" / "rl.csv"
    puzzles = selected(read_puzzles(source, SkipReport()), 0, config.max_rating)
    if len(puzzles) < config.prompts:
        raise InputError(
            f"{source} has {len(puzzles)} puzzles up to rl.max_rating={config.max_rating}, fewer "
            f"than rl.prompts={config.prompts}"
        )
    start = weights_file(run, "sft")
    model = load_model(start, tokens.VOCABULARY_HASH)
    reference = load_model(start, tokens.VOCABULARY_HASH) if config.kl else None
    module = PuzzleRL(model, reference, config, run.prompt.form, run.seed)
    with working(run, out, "rl"):
        seconds = fit(
            module,
            lambda step: prompts_of(puzzles, config.prompts, run.seed, step),
            label="rl",
            steps=config.steps,
            folder=out,
            config=run.trainer,
            precision=run.trainer.rl_precision,
            checkpoint_every=config.checkpoint_every,
            log_every=1,
            shown={name: name for name in ("reward", "mixed", "response_tokens")},
            counted="rollout_tokens",
            watched=False,
        )
        save_model(out.checkpoints / "model.safetensors", model, tokens.VOCABULARY_HASH)
        result = inherited(run, "rl")
        result.model = model.config.name
        result.n_params = compute.parameters(model.config, len(tokens.TOKENS))
        active = compute.active_parameters(model.config, len(tokens.TOKENS))
        read, written = float(module.rollout_tokens), float(module.rollout_count)
        result.tokens["rl"] = read
        result.flops["rl"] = compute.rl_flops(active, read, reference is not None)
        forward = compute.exact_forward_flops(
            model.config, len(tokens.TOKENS), read, read / written
        )
        result.exact_flops["rl"] = forward * (4 + (reference is not None))
        result.measures = {"steps": float(config.steps), "episodes": written}
        if model.config.experts:
            result.measures["active_params"] = float(active)
        result.seconds = seconds
        out.write(result)
    return result


def prompts_of(puzzles: Sequence[Puzzle], count: int, seed: int, step: int) -> list[Puzzle]:
    """The puzzles of a step: each pass takes them all once, in an order of its own."""
    places = [divmod(place, len(puzzles)) for place in range(step * count, (step + 1) * count)]
    orders = {
        epoch: np.random.default_rng((seed, epoch)).permutation(len(puzzles))
        for epoch in {epoch for epoch, _ in places}
    }
    return [puzzles[orders[epoch][index]] for epoch, index in places]


@dataclass(frozen=True)
class Rows:
    """Episodes as padded rows: B episodes, T places, each predicting the next token."""

    inputs: Tensor
    """(B, T) tokens read."""
    targets: Tensor
    """(B, T) tokens that followed."""
    mask: Tensor
    """(B, T) True where the model chose the target."""
    behaviour: Tensor
    """(B, T) log-probability in nats of the target when it was sampled."""
    advantage: Tensor
    """(B,)"""

    def to(self, device: torch.device) -> "Rows":
        """The same rows on a device."""
        return Rows(*(getattr(self, field.name).to(device) for field in fields(self)))


def as_rows(rollouts: Sequence[Rollout], advantage: Tensor) -> Rows:
    """Pad episodes on the right; the environment's tokens and the prompt are masked out."""
    lengths = [len(r.prompt) + len(r.sample.tokens) for r in rollouts]
    shape = (len(rollouts), max(lengths))
    ids = torch.full(shape, tokens.PAD)
    mask = torch.zeros(shape, dtype=torch.bool)
    behaviour = torch.zeros(shape)
    for row, (rollout, length) in enumerate(zip(rollouts, lengths, strict=True)):
        start = len(rollout.prompt)
        ids[row, :length] = torch.tensor(rollout.prompt + rollout.sample.tokens)
        mask[row, start:length] = torch.tensor(rollout.sample.sampled)
        behaviour[row, start:length] = torch.tensor(rollout.sample.logprobs)
    return Rows(ids[:, :-1], ids[:, 1:], mask[:, 1:], behaviour[:, 1:], advantage)


def microbatches(lengths: Sequence[int], limit: int) -> list[list[int]]:
    """Episodes of like length together, at most `limit` padded tokens each where one fits."""
    order = sorted(range(len(lengths)), key=lambda i: (lengths[i], i))
    batches: list[list[int]] = [[]]
    for i in order:
        if batches[-1] and (len(batches[-1]) + 1) * lengths[i] > limit:
            batches.append([])
        batches[-1].append(i)
    return batches


class PuzzleRL(L.LightningModule):
    """Plays a batch of puzzles, gives credit, and makes one update."""

    def __init__(
        self,
        model: Transformer,
        reference: Transformer | None,
        config: RlConfig,
        form: str,
        seed: int,
    ) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.model, self.config, self.form, self.seed = model, config, form, seed
        self._reference = [reference]  # in a list, to be no part of the checkpoint
        self.register_buffer("rollout_tokens", torch.zeros((), dtype=torch.int64))
        self.register_buffer("rollout_count", torch.zeros((), dtype=torch.int64))

    def transfer_batch_to_device(self, batch: list[Puzzle], *_: Any) -> list[Puzzle]:
        """Puzzles are no tensors and stay where they are."""
        return batch

    def training_step(self, puzzles: list[Puzzle], _: int) -> None:
        """One step of GRPO."""
        config, step = self.config, self.global_step
        rollouts = play(
            self.model,
            puzzles,
            config.group_size,
            form=self.form,
            thinks=True,
            budget=config.max_new_tokens,
            temperature=config.temperature,
            generator=seeded(self.seed, step),
        )
        reward = torch.tensor([r.outcome.reward for r in rollouts]).view(-1, config.group_size)
        advantage = group_advantage(reward).flatten()
        self.rollout_tokens += sum(len(r.prompt) + len(r.sample.tokens) for r in rollouts)
        self.rollout_count += len(rollouts)
        update = self._update(rollouts, advantage)
        self.log_dict(
            self._measures(rollouts, reward)
            | update
            | {"rollout_tokens": self.rollout_tokens.double()}
        )

    def _update(self, rollouts: list[Rollout], advantage: Tensor) -> dict[str, Tensor]:
        """Take one step on the mean over all episodes, whatever the size of a microbatch.

        Episodes of groups that agree have no advantage: they count in the mean, and where there is
        no KL term they are not computed, since their gradient is exactly 0.
        """
        config = self.config
        live = [i for i in range(len(rollouts)) if config.kl or advantage[i] != 0]
        optimizer, scheduler = self.optimizers(), self.lr_schedulers()
        lengths = [len(rollouts[i].prompt) + len(rollouts[i].sample.tokens) for i in live]
        parts = microbatches(lengths, config.microbatch_tokens) if live else []
        self.model.train()
        ratios, kls, clipped, used = [], [], [], []
        loss = torch.zeros((), device=self.device)
        for part in parts:
            chosen = [live[i] for i in part]
            rows = as_rows([rollouts[i] for i in chosen], advantage[chosen]).to(self.device)
            routes: list[Tensor] = []
            objective, logp, kl = self._objective(rows, routes)
            if routes:
                used.append(self._counts(routes, rows))
            part_loss = -objective.sum() / len(rollouts)
            self.manual_backward(part_loss)
            loss += part_loss.detach()
            ratio = (logp.detach() - rows.behaviour)[rows.mask].exp()
            ratios.append(ratio)
            clipped.append(((ratio - 1).abs() > config.clip).float())
            kls.append(kl.detach()[rows.mask])
        check_finite(loss, "loss", "rl", self.global_step)
        measures = {"loss": loss} | rates_of(optimizer)
        if parts:
            norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), config.optim.clip)
            check_finite(norm, "gradient", "rl", self.global_step)
            ratio = torch.cat(ratios)
            measures |= {
                "gradient_norm": norm,
                "ratio_min": ratio.min(),
                "ratio_mean": ratio.mean(),
                "ratio_max": ratio.max(),
                "clipped": torch.cat(clipped).mean(),
                "kl": torch.cat(kls).mean(),
            }
        if used:
            measures |= use_of_experts(torch.stack(used).sum(0))
        optimizer.step()
        optimizer.zero_grad()
        scheduler.step()
        return measures

    @torch.no_grad()
    def _counts(self, routes: list[Tensor], rows: Rows) -> Tensor:
        return counts_of(routes, self.model.config.experts_per_token, rows.inputs != tokens.PAD)

    def _objective(self, rows: Rows, routes: list[Tensor]) -> tuple[Tensor, Tensor, Tensor]:
        """Per episode what is maximised (B,); per token log-probabilities and KL (B, T)."""
        config, reference = self.config, self._reference[0]
        logits = self.model(rows.inputs, routes=routes)
        logp = token_logprobs(logits, rows.targets, config.temperature)
        gain = clipped_surrogate(logp, rows.behaviour, rows.advantage, config.clip)
        kl = torch.zeros_like(logp)
        if reference is not None:
            reference.to(self.device)
            with torch.no_grad():
                anchor = token_logprobs(reference(rows.inputs), rows.targets, config.temperature)
            kl = kl_k3(logp, anchor)
        return sample_mean(gain - config.kl * kl, rows.mask), logp, kl

    def _measures(self, rollouts: list[Rollout], reward: Tensor) -> dict[str, float]:
        solved = reward.sum(dim=1)
        ended = Counter(r.outcome.ended_by for r in rollouts)
        sampled = [sum(r.sample.sampled) for r in rollouts]
        surprise = -sum(sum(r.sample.logprobs) for r in rollouts)
        return {
            "reward": float(reward.mean()),
            "any_solved": float((solved > 0).float().mean()),
            "none_solved": float((solved == 0).float().mean()),
            "all_solved": float((solved == reward.shape[1]).float().mean()),
            "mixed": float(((solved > 0) & (solved < reward.shape[1])).float().mean()),
            "first_legal": sum(r.outcome.first_legal for r in rollouts) / len(rollouts),
            "thought_closed": sum(r.thought is not None for r in rollouts) / len(rollouts),
            "response_tokens": sum(sampled) / len(sampled),
            "entropy": surprise / sum(sampled),
        } | {f"ended_{name}": ended[name] / len(rollouts) for name in ENDINGS[:-1]}

    def configure_optimizers(self) -> OptimizerLRScheduler:
        """Optimiser and schedule of the config."""
        optimizer = build_optimizer(self.model, self.config.optim)
        return [optimizer], [build_schedule(optimizer, self.config.optim, self.config.steps)]
