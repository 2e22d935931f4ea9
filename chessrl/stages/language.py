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
        self._begin()

    def _begin(self) -> None:
        """Forget the parts of the last step."""
        self._sums: list[Tensor] = []
        self._balances: list[Tensor] = []
        self._counts: list[Tensor] = []

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
        norm = clip_grad_norm_(self.model.parameters(), self.optim.clip)
        check_finite(norm, "gradient", self.label, self.global_step)
        measures = {"loss": loss}
        if self.games:
            measures["nats_per_ply"] = nats / plies
        measures |= {
            "tokens": float(self.schedule.cumulative[self.global_step]),
            **rates_of(optimizer),
            "gradient_norm": norm,
        }
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
