"""What a batch of RL tells about itself: rewards, groups, endings, lengths."""

from collections import Counter
from collections.abc import Sequence

import numpy as np

from chessrl.board.episodes import ENDINGS
from chessrl.metrics import pass_at_k, powers_of_two
from chessrl.stages.rollouts import Rollout
from chessrl.stages.update import Credit


def measures_of(rollouts: Sequence[Rollout], credit: Credit, step: int) -> dict[str, float]:
    """Shares and means over the episodes of a batch, those that are left out of the loss included.

    Args:
        step: updates that the policy has seen by now.
    """
    n = len(rollouts)
    solved: dict[int, list[float]] = {}
    for rollout in rollouts:
        solved.setdefault(rollout.group, []).append(rollout.outcome.reward)
    counts = [(len(group), round(sum(group))) for group in solved.values()]
    sampled = [sum(rollout.sample.sampled) for rollout in rollouts]
    surprise = -sum(sum(rollout.sample.logprobs) for rollout in rollouts)
    ended = Counter(rollout.outcome.ended_by for rollout in rollouts)
    size = min(size for size, _ in counts)
    return (
        {
            "reward": float(np.mean([rollout.reward for rollout in rollouts])),
            "shaped_reward": float(credit.reward.mean()),
            "solved": float(sum(c for _, c in counts)),
        }
        | {
            f"pass@{k}": float(np.mean([pass_at_k(size, c, k) for size, c in counts]))
            for k in powers_of_two(size)
        }
        | {
            "none_solved": float(np.mean([c == 0 for _, c in counts])),
            "all_solved": float(np.mean([c == size for size, c in counts])),
            "mixed": float(np.mean([0 < c < size for size, c in counts])),
            "groups": float(len(counts)),
            "counted": float(credit.counted.float().mean()),
            "first_legal": sum(r.outcome.first_legal for r in rollouts) / n,
            "thought_closed": sum(r.thought is not None for r in rollouts) / n,
            "response_tokens": float(np.mean(sampled)),
            "entropy": surprise / sum(sampled),
            "lag": float(np.mean([step - rollout.version for rollout in rollouts])),
        }
        | {f"ended_{name}": ended[name] / n for name in ENDINGS[:-1]}
    )
