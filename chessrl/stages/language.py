"""Next-token training under Lightning: pretraining and SFT are one step on different data."""

import lightning as L
import torch
from lightning.pytorch.utilities.types import OptimizerLRScheduler
from torch import Tensor
from torch.nn.utils import clip_grad_norm_

from chessrl.config import OptimConfig
from chessrl.policy.experts import balance_loss, counts_of, use_of_experts
from chessrl.policy.losses import masked_nll
from chessrl.policy.optim import build_optimizer, build_schedule
from chessrl.policy.transformer import Transformer
from chessrl.stages.batches import Batch, Schedule
from chessrl.stages.training import check_finite


class LanguageModel(L.LightningModule):
    """Learns to predict the targets of documents."""

    def __init__(
        self, model: Transformer, schedule: Schedule, optim: OptimConfig, label: str
    ) -> None:
        super().__init__()
        self.model, self.schedule, self.optim = model, schedule, optim
        self.label = label

    def training_step(self, batch: Batch, _: int) -> Tensor:
        """Mean loss in nats per target, and with experts what evens out their use."""
        routes: list[Tensor] = []
        logits = self.model(batch.inputs, routes=routes)
        loss = masked_nll(logits, batch.targets, batch.mask) / batch.mask.sum()
        check_finite(loss, "loss", self.label, self.global_step)
        self._loss, self._routing = loss.detach(), {}
        if routes:
            config = self.model.config
            read = batch.inputs != self.schedule.pad
            balance = balance_loss(routes, config.experts_per_token, read)
            with torch.no_grad():
                counts = counts_of(routes, config.experts_per_token, read)
            self._routing = {"router_balance": balance.detach(), **use_of_experts(counts)}
            loss = loss + config.router_aux * balance
        return loss

    def on_before_optimizer_step(self, optimizer: torch.optim.Optimizer) -> None:
        """Clip, and log. Lightning itself refuses to clip for a fused optimiser."""
        norm = clip_grad_norm_(self.model.parameters(), self.optim.clip)
        check_finite(norm, "gradient", self.label, self.global_step)
        self.log_dict(
            {
                "loss": self._loss,
                "tokens": float(self.schedule.cumulative[self.global_step]),
                "lr": optimizer.param_groups[0]["lr"],
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
