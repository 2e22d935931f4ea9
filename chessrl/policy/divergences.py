"""Estimates of KL(policy || reference) per token, in nats (Schulman 2020, "Approximating KL
divergence").

Of tokens sampled from the policy all but k2 have the divergence as their mean. Their gradients are
another matter: taken through the loss, k1's is 0 on average and does nothing, k2's is that of
KL(policy || reference), and k3's, which GRPO uses, that of KL(reference || policy). Taken off the
reward, k1 has the gradient of KL(policy || reference).
"""

from torch import Tensor


def k1(logp: Tensor, reference: Tensor) -> Tensor:
    """`log p / q`, of either sign."""
    return logp - reference


def k2(logp: Tensor, reference: Tensor) -> Tensor:
    """`(log p / q)^2 / 2`, never negative."""
    return (logp - reference).square() / 2


def k3(logp: Tensor, reference: Tensor) -> Tensor:
    """`q / p - 1 - log q / p`, never negative."""
    log_ratio = reference - logp
    return log_ratio.expm1() - log_ratio


ESTIMATORS = {"k1": k1, "k2": k2, "k3": k3}
