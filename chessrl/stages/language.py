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
        self._begin()

    def _begin(self) -> None:
        """Forget the parts of the last step."""
        self._losses: list[Tensor] = []
        self._balances: list[Tensor] = []
        self._counts: list[Tensor] = []

    def training_step(self, part: Batch, _: int) -> Tensor:
        """Loss of a part of the step in nats per target of the whole step.

        The parts' sum is the step's mean loss, however it is cut; Lightning divides by their
        number. With experts, what evens out their use is added as a mean over the parts.
        """
        parts = self.trainer.accumulate_grad_batches
        routes: list[Tensor] = []
        logits = self.model(part.inputs, routes=routes, documents=part.documents)
        loss = masked_nll(logits, part.targets, part.mask) / part.counted
        check_finite(loss, "loss", self.label, self.global_step)
        self._losses.append(loss.detach())
        loss = loss * parts
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
        norm = clip_grad_norm_(self.model.parameters(), self.optim.clip)
        check_finite(norm, "gradient", self.label, self.global_step)
        measures = {
            "loss": torch.stack(self._losses).sum(),
            "tokens": float(self.schedule.cumulative[self.global_step]),
            "lr": optimizer.param_groups[0]["lr"],
            "gradient_norm": norm,
        }
        if self._counts:
            measures["router_balance"] = torch.stack(self._balances).mean()
            measures |= use_of_experts(torch.stack(self._counts).sum(0))
        self.log_dict(measures)
        self._begin()

    def configure_optimizers(self) -> OptimizerLRScheduler:
        """Optimiser and schedule of the config, one advance per step."""
        optimizer = build_optimizer(self.model, self.optim)
        scheduler = build_schedule(optimizer, self.optim, len(self.schedule))
        return {
            "optimizer": optimizer,
            "lr_scheduler": {"scheduler": scheduler, "interval": "step"},
        }
