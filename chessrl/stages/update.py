"""One update of RL: from judged episodes to gradients, whatever the microbatches and devices."""

from collections.abc import Sequence
from dataclasses import dataclass, fields

import torch
from torch import Tensor

from chessrl.board import tokens
from chessrl.board.episodes import TRUNCATED
from chessrl.config import RlConfig
from chessrl.policy.credit import advantage_of, agree, length_penalty, token_weights
from chessrl.policy.divergences import ESTIMATORS
from chessrl.policy.losses import token_entropy, token_logprobs
from chessrl.policy.surrogates import surrogate
from chessrl.policy.transformer import Transformer
from chessrl.stages.rollouts import Rollout


@dataclass(frozen=True)
class Credit:
    """What a batch of B episodes has earned; all (B,)."""

    reward: Tensor
    """With the length penalty and a KL term in the reward, where these are on."""
    advantage: Tensor
    weight: Tensor
    """Of each token of the episode in the loss."""
    counted: Tensor
    """True where the episode takes part in the mean."""
    live: Tensor
    """True where its gradient is not 0 for sure."""


def credit_of(rollouts: Sequence[Rollout], config: RlConfig, divergence: Tensor | None) -> Credit:
    """Reward, advantage and weights, over the whole batch.

    A group agrees where its judged rewards do, before penalties. With `rl.zero_variance=keep` such
    groups count in the mean, with an advantage of 0 unless penalties set their episodes apart;
    otherwise they are left out of it.

    Args:
        divergence: (B,) nats by which the episodes diverge from the reference, for the reward.
    """
    judged = torch.tensor([rollout.reward for rollout in rollouts])
    numbers = {rollout.group: None for rollout in rollouts}
    numbers = {number: place for place, number in enumerate(numbers)}
    groups = torch.tensor([numbers[rollout.group] for rollout in rollouts])
    lengths = torch.tensor([sum(rollout.sample.sampled) for rollout in rollouts])
    reward = judged
    if config.length.control == "penalty":
        solved = torch.tensor([rollout.outcome.reward for rollout in rollouts]) == 1
        penalty = length_penalty(lengths, config.max_new_tokens, config.length.margin)
        reward = reward + torch.where(solved, penalty, 0.0)
    if divergence is not None:
        reward = reward - config.kl.weight * divergence
    counted = torch.ones_like(groups, dtype=torch.bool)
    if config.zero_variance != "keep":
        counted &= ~agree(judged, groups)
    if config.length.drop_truncated:
        ended = [rollout.outcome.ended_by for rollout in rollouts]
        counted &= torch.tensor([how != TRUNCATED for how in ended])
    advantage = advantage_of(reward, groups, config.advantage, counted)
    weight = token_weights(lengths, groups, counted, config.loss.aggregation)
    regularised = config.loss.entropy > 0 or (config.kl.weight > 0 and config.kl.place == "loss")
    live = counted & ((advantage != 0) | regularised)
    return Credit(reward, advantage, weight, counted, live)


ROW = 256
"""Tokens up to which episodes of a group share a row, and with it the reading of their prompt."""


@dataclass(frozen=True)
class Rows:
    """B episodes of at most T tokens, read in R rows of S places.

    A row holds a prompt and episodes that go on from it.
    """

    inputs: Tensor
    """(R, S) tokens read."""
    branches: Tensor | None
    """(R, S) 0 for the prompt, and the number of the episode in its row, from 1; None where no row
    has more than one, so that it is read as any text is."""
    places: Tensor
    """(B, T) place among all R x S of the token that predicts the target."""
    targets: Tensor
    """(B, T) tokens of the episode after its prompt."""
    mask: Tensor
    """(B, T) True where the model chose the target."""
    behaviour: Tensor
    """(B, T) log-probability in nats of the target when it was sampled."""
    advantage: Tensor
    """(B,)"""
    weight: Tensor
    """(B,) of each token that the model chose."""

    def to(self, device: torch.device) -> "Rows":
        """The same rows on a device."""
        values = (getattr(self, field.name) for field in fields(self))
        return Rows(*(None if value is None else value.to(device) for value in values))


def as_rows(
    rollouts: Sequence[Rollout], rows: Sequence[Sequence[int]], advantage: Tensor, weight: Tensor
) -> Rows:
    """Episodes as rows, padded on the right.

    Args:
        rows: numbers of the episodes in each row; those of a row have one prompt.
        advantage: (N,) of all rollouts, of which the rows take some.
        weight: (N,) likewise.
    """
    width = max(row_length(rollouts, row) for row in rows)
    chosen = [i for row in rows for i in row]
    shape = (len(chosen), max(len(rollouts[i].sample.tokens) for i in chosen))
    inputs = torch.full((len(rows), width), tokens.PAD)
    branches = torch.ones_like(inputs)
    places, targets = torch.zeros(shape, dtype=torch.long), torch.full(shape, tokens.PAD)
    mask, behaviour = torch.zeros(shape, dtype=torch.bool), torch.zeros(shape)
    episode = 0
    for number, row in enumerate(rows):
        prompt = rollouts[row[0]].prompt
        end = len(prompt)
        inputs[number, :end], branches[number, :end] = torch.tensor(prompt), 0
        for branch, i in enumerate(row, 1):
            one = rollouts[i].sample
            length = len(one.tokens)
            written = torch.tensor(one.tokens)
            inputs[number, end : end + length - 1] = written[:-1]
            branches[number, end : end + length - 1] = branch
            places[episode, 0] = number * width + len(prompt) - 1
            places[episode, 1:length] = number * width + torch.arange(end, end + length - 1)
            targets[episode, :length] = written
            mask[episode, :length] = torch.tensor(one.sampled)
            behaviour[episode, :length] = torch.tensor(one.logprobs)
            end += length - 1
            episode += 1
        branches[number, end:] = len(row) + 1
    given = branches if len(chosen) > len(rows) else None
    return Rows(inputs, given, places, targets, mask, behaviour, advantage[chosen], weight[chosen])


def row_length(rollouts: Sequence[Rollout], row: Sequence[int]) -> int:
    """Places that episodes with one prompt take up together; the last token of each is not read."""
    return len(rollouts[row[0]].prompt) + sum(len(rollouts[i].sample.tokens) - 1 for i in row)


def rows_of(rollouts: Sequence[Rollout], live: Sequence[int]) -> list[list[int]]:
    """Episodes of a group together in rows of at most `ROW` tokens, or alone where longer."""
    rows: list[list[int]] = []
    for i in live:
        fits = (
            rows
            and rollouts[rows[-1][0]].group == rollouts[i].group
            and row_length(rollouts, [*rows[-1], i]) <= ROW
        )
        if fits:
            rows[-1].append(i)
        else:
            rows.append([i])
    return rows


def microbatches(lengths: Sequence[int], limit: int) -> list[list[int]]:
    """Rows of like length together, at most `limit` padded tokens each where one fits."""
    order = sorted(range(len(lengths)), key=lambda i: (lengths[i], i))
    batches: list[list[int]] = []
    for i in order:
        if not batches or (len(batches[-1]) + 1) * lengths[i] > limit:
            batches.append([])
        batches[-1].append(i)
    return batches


@dataclass
class Objective:
    """What an update maximises, and what it tells on the way."""

    value: Tensor
    """Scalar; parts of a batch add up."""
    ratio: Tensor
    """(n,) of the tokens that the model chose, n of them, before any clipping."""
    clipped: Tensor
    """(n,) True where the ratio is out of bounds, whether or not the advantage makes them bind."""
    kl: Tensor | None
    """(n,) estimates in nats; None without a reference."""


def objective(
    model: Transformer,
    reference: Transformer | None,
    rows: Rows,
    config: RlConfig,
    routes: list[Tensor],
) -> Objective:
    """The weighted sum over tokens of surrogate, entropy and divergence.

    Args:
        routes: takes up the router's logits of a model with experts.
    """
    logits = logits_of(model, rows, routes)
    logp = chosen_logprobs(logits, rows, config.temperature)
    loss = config.loss
    gain, clipped = surrogate(
        loss.name, logp, rows.behaviour, rows.advantage, rows.mask, loss.low, loss.high
    )
    if loss.entropy:
        gain = gain + loss.entropy * token_entropy(logits, config.temperature)
    kl = None
    if reference is not None:
        kl = divergence(reference, rows, logp, config)
        gain = gain - config.kl.weight * kl
    return Objective(
        torch.where(rows.mask, rows.weight[:, None] * gain, 0.0).sum(),
        (logp.detach() - rows.behaviour)[rows.mask].exp(),
        clipped[rows.mask],
        None if kl is None else kl.detach()[rows.mask],
    )


def logits_of(model: Transformer, rows: Rows, routes: list[Tensor] | None = None) -> Tensor:
    """Logits (B, T, V) of the targets."""
    features = model.features(rows.inputs, routes=routes, branches=rows.branches)
    return model.logits(features.flatten(0, 1)[rows.places])


def chosen_logprobs(logits: Tensor, rows: Rows, temperature: float) -> Tensor:
    """Log-probabilities (B, T) in nats of what the model chose; 0 elsewhere, without gradient.

    There a token may be so unlikely that its ratio is infinite, and its gradient no number.
    """
    return torch.where(rows.mask, token_logprobs(logits, rows.targets, temperature), 0.0)


def divergence(reference: Transformer, rows: Rows, logp: Tensor, config: RlConfig) -> Tensor:
    """Estimates (B, T) of the divergence of log-probabilities from the reference's, in nats."""
    with torch.no_grad():
        anchor = chosen_logprobs(logits_of(reference, rows), rows, config.temperature)
    return ESTIMATORS[config.kl.estimator](logp, anchor)


def episode_divergence(
    reference: Transformer, rollouts: Sequence[Rollout], config: RlConfig, device: torch.device
) -> Tensor:
    """Nats (B,) by which each episode diverges from the reference, summed over its tokens."""
    total = torch.zeros(len(rollouts))
    for part in parts_of(rollouts, range(len(rollouts)), config.microbatch_tokens):
        rows = as_rows(rollouts, part, total, total).to(device)
        kl = divergence(reference, rows, rows.behaviour, config)
        total[[i for row in part for i in row]] = torch.where(rows.mask, kl, 0.0).sum(dim=1).cpu()
    return total


def parts_of(rollouts: Sequence[Rollout], live: Sequence[int], limit: int) -> list[list[list[int]]]:
    """Rows of the episodes in microbatches of at most `limit` tokens where a row fits."""
    rows = rows_of(rollouts, live)
    parts = microbatches([row_length(rollouts, row) for row in rows], limit)
    return [[rows[i] for i in part] for part in parts]
