"""Next-token training under Lightning: pretraining and SFT are one step on different data."""

from pathlib import Path

import lightning as L
import torch
from lightning.pytorch.strategies import ModelParallelStrategy
from lightning.pytorch.utilities.types import OptimizerLRScheduler
from torch import Tensor
from torch.nn.utils import clip_grad_norm_

from chessrl.artifacts import RunFolder
from chessrl.config import OptimConfig, Run
from chessrl.policy.experts import balance_loss, counts_of, use_of_experts
from chessrl.policy.losses import masked_nll
from chessrl.policy.machine import compile_blocks
from chessrl.policy.optim import build_optimizer, build_schedule, rates_of
from chessrl.policy.transformer import Transformer
from chessrl.stages.batches import Batch, Schedule
from chessrl.stages.group import group
from chessrl.stages.plies import moves_begun
from chessrl.stages.sharding import shard, whole
from chessrl.stages.training import check_finite, fit, worth_compiling


class LanguageModel(L.LightningModule):
    """Learns to predict the targets of documents."""

    def __init__(
        self,
        model: Transformer,
        schedule: Schedule,
        optim: OptimConfig,
        label: str,
        *,
        games: bool,
    ) -> None:
        """`games`: the documents are games, so that a loss per ply makes sense."""
        super().__init__()
        self.model, self.schedule, self.optim = model, schedule, optim
        self.label, self.games = label, games
        self._begin()

    def _begin(self) -> None:
        """Forget the parts of the last step."""
        self._sums: list[Tensor] = []
        self._balances: list[Tensor] = []
        self._counts: list[Tensor] = []

    def configure_model(self) -> None:
        """Cut the model over the devices where they are to share it."""
        if isinstance(self.trainer.strategy, ModelParallelStrategy):
            shard(self.model, self.device_mesh)

    def training_step(self, part: Batch, _: int) -> Tensor:
        """Loss of a part of the step, in nats per target of the whole step.

        The step's loss is the sum over its parts, here and in the other processes, however it is
        cut. Lightning takes means over both, which the factors undo. With experts, what evens out
        their use is added as a mean over the parts.
        """
        parts = self.trainer.accumulate_grad_batches * self.trainer.world_size
        routes: list[Tensor] = []
        logits = self.model(part.inputs, routes=routes, documents=part.documents)
        nats = masked_nll(logits, part.targets, part.mask)
        plies = moves_begun(part.inputs, part.targets, part.mask)
        self._sums.append(torch.stack([nats.detach(), plies]))
        self._counted = part.counted
        loss = nats / part.counted * parts
        if routes:
            config, read = self.model.config, part.documents > 0
            balance = balance_loss(routes, config.experts_per_token, read)
            with torch.no_grad():
                self._counts.append(counts_of(routes, config.experts_per_token, read))
            self._balances.append(balance.detach())
            loss = loss + config.router_aux * balance
        return loss

    def on_before_optimizer_step(self, optimizer: torch.optim.Optimizer) -> None:
        """Clip, and log. Lightning itself refuses to clip for a fused optimiser."""
        nats, plies = self._over_all_ranks(torch.stack(self._sums).sum(0))
        loss = nats / self._counted
        check_finite(loss, "loss", self.label, self.global_step)
        norm = whole(clip_grad_norm_(self.model.parameters(), self.optim.clip))
        check_finite(norm, "gradient", self.label, self.global_step)
        measures = {"loss": loss}
        if self.games:
            measures["nats_per_ply"] = nats / plies
        measures |= {
            "tokens": float(self.schedule.cumulative[self.global_step]),
            **rates_of(optimizer),
            "gradient_norm": norm,
        }
        if self.schedule.mixed_epochs:
            mixed_in = float(self.schedule.mixed_in[self.global_step])
            measures["harvest_share"] = mixed_in / measures["tokens"]
        if self._counts:
            measures["router_balance"] = torch.stack(self._balances).mean()
            measures |= use_of_experts(self._over_all_ranks(torch.stack(self._counts).sum(0)))
        self.log_dict(measures)
        self._begin()

    def _over_all_ranks(self, values: Tensor) -> Tensor:
        """Sums over the processes that train together."""
        return self.trainer.strategy.reduce(values, reduce_op="sum")

    def configure_optimizers(self) -> OptimizerLRScheduler:
        """Optimiser and schedule of the config, one advance per step."""
        optimizer = build_optimizer(self.model, self.optim)
        scheduler = build_schedule(optimizer, self.optim, len(self.schedule))
        return {
            "optimizer": optimizer,
            "lr_scheduler": {"scheduler": scheduler, "interval": "step"},
        }


def fit_documents(
    run: Run,
    label: str,
    out: RunFolder,
    model: Transformer,
    schedule: Schedule,
    optim: OptimConfig,
    *,
    steps: int,
    flops: float,
    games: bool,
    microbatch_tokens: int,
    checkpoint_every: int,
    log_every: int,
    start: Path | None = None,
    end: Path | None = None,
) -> float:
    """Train a model on the first steps of a schedule; seconds as `fit` has them.

    Args:
        flops: what it comes to, which decides whether compiling is worth its time.
        games: the documents are games, so that a loss per ply makes sense.
        microbatch_tokens: places in one backward pass of a process.
        start, end: checkpoints, as in `fit`.
    """
    place = group()
    if worth_compiling(run.trainer, flops):
        compile_blocks(model)
    rows = -(-schedule.rows // place.size)
    return fit(
        LanguageModel(model, schedule, optim, label, games=games),
        lambda step: schedule.batch(step).part(place.rank, place.size),
        label=label,
        steps=steps,
        folder=out,
        config=run.trainer,
        precision=run.trainer.precision,
        checkpoint_every=checkpoint_every,
        log_every=log_every,
        shown={"nats/token": "loss"} | ({"nats/ply": "nats_per_ply"} if games else {}),
        counted="tokens",
        watched=True,
        parts=-(-rows // max(microbatch_tokens // schedule.context, 1)),
        start=start,
        end=end,
    )
