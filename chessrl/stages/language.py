"""Next-token training under Lightning: pretraining and SFT are one step on different data."""

import lightning as L
import torch
from lightning.pytorch.utilities.types import OptimizerLRScheduler
from torch import Tensor
from torch.nn.utils import clip_grad_norm_

from chessrl.config import OptimConfig
from chessrl.policy.experts import balance_loss, counts_of, use_of_experts
from chessrl.policy.losses import masked_nll
from chessrl.policy.optim import build_optimizer, build_schedule, rates_of
from chessrl.policy.transformer import Transformer
from chessrl.stages.batches import Batch, Schedule
from chessrl.stages.plies import moves_begun
from chessrl.stages.training import check_finite


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

    def training_step(self, batch: Batch, _: int) -> Tensor:
        """Mean loss in nats per target, and with experts what evens out their use."""
        routes: list[Tensor] = []
        logits = self.model(batch.inputs, routes=routes)
        nats = masked_nll(logits, batch.targets, batch.mask)
        total, targets, plies = self._over_all_ranks(
            nats.detach(), batch.mask.sum(), moves_begun(batch.inputs, batch.targets, batch.mask)
        )
        loss = nats / targets * self.trainer.world_size  # gradients are averaged over the ranks
        self._losses, self._routing = {"loss": total / targets}, {}
        check_finite(self._losses["loss"], "loss", self.label, self.global_step)
        if self.games:
            self._losses["nats_per_ply"] = total / plies
        if routes:
            config = self.model.config
            read = batch.inputs != self.schedule.pad
            balance = balance_loss(routes, config.experts_per_token, read)
            with torch.no_grad():
                counts = counts_of(routes, config.experts_per_token, read)
            self._routing = {"router_balance": balance.detach(), **use_of_experts(counts)}
            loss = loss + config.router_aux * balance
        return loss

    def _over_all_ranks(self, *values: Tensor) -> Tensor:
        """Sums over the processes that train together: one float for each value."""
        ours = torch.stack([value.float() for value in values])
        return self.trainer.strategy.reduce(ours, reduce_op="sum")

    def on_before_optimizer_step(self, optimizer: torch.optim.Optimizer) -> None:
        """Clip, and log. Lightning itself refuses to clip for a fused optimiser."""
        norm = clip_grad_norm_(self.model.parameters(), self.optim.clip)
        check_finite(norm, "gradient", self.label, self.global_step)
        self.log_dict(
            {
                **self._losses,
                "tokens": float(self.schedule.cumulative[self.global_step]),
                **rates_of(optimizer),
                "gradient_norm": norm,
                **self._routing,
            }
        )

    def configure_optimizers(self) -> OptimizerLRScheduler:
        """Optimiser and schedule of the config, one advance per step."""
        optimizer = build_optimizer(self.model, self.optim)
        scheduler = build_schedule(optimizer, self.optim, len(self.schedule))
        return {
            "optimizer": optimizer,
            "lr_scheduler": {"scheduler": scheduler, "interval": "step"},
        }
