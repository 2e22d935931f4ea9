"""Muon (Jordan et al. 2024) with the matrices of one shape orthogonalised together."""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.optim import Muon


class GroupedMuon(Muon):
    """torch's Muon, bit for bit, in a fraction of its time where there are many small matrices."""

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:
        """One step."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            parameters, gradients, momenta = [], [], []
            self._init_group(group, parameters, gradients, momenta)
            if not parameters:
                continue
            torch._foreach_lerp_(momenta, gradients, 1 - group["momentum"])
            updates = torch._foreach_lerp(gradients, momenta, group["momentum"])  # Nesterov's
            torch._foreach_mul_(parameters, 1 - group["lr"] * group["weight_decay"])
            alike: dict[torch.Size, list[int]] = {}
            for i, parameter in enumerate(parameters):
                alike.setdefault(parameter.shape, []).append(i)
            for (rows, columns), members in alike.items():
                stack = torch.stack([updates[i] for i in members])
                turned = orthogonal(
                    stack, group["ns_coefficients"], group["ns_steps"], group["eps"]
                )
                rate = group["lr"] * max(1.0, rows / columns) ** 0.5
                torch._foreach_add_(
                    [parameters[i] for i in members], list(turned.float().unbind()), alpha=-rate
                )
        return loss


def orthogonal(
    matrices: Tensor, coefficients: tuple[float, float, float], steps: int, eps: float
) -> Tensor:
    """Matrices (M, R, C) with their singular values brought near 1, in bf16.

    A quintic Newton-Schulz iteration, x <- a x + (b g + c g g) x with g = x x^T.
    """
    a, b, c = coefficients
    tall = matrices.shape[1] > matrices.shape[2]
    x = matrices.bfloat16()
    x = x.mT if tall else x
    x = x / x.float().norm(dim=(1, 2), keepdim=True).bfloat16().clamp(min=eps)
    for _ in range(steps):
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.mT if tall else x
