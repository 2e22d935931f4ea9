"""Muon of many matrices at once: torch's own is the oracle."""

import pytest
import torch
from torch.optim import Muon

from chessrl.policy.muon import GroupedMuon, orthogonal

SHAPES = [(24, 24), (48, 24), (24, 48), (24, 24), (7, 3), (48, 24), (1, 5)]


@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
def test_the_steps_are_those_of_torch(weight_decay):
    outcomes = []
    for kind in (Muon, GroupedMuon):
        generator = torch.Generator().manual_seed(0)
        parameters = [torch.randn(shape, generator=generator) for shape in SHAPES]
        optimizer = kind(parameters, lr=0.02, weight_decay=weight_decay)
        for step in range(4):
            for place, parameter in enumerate(parameters):
                parameter.grad = torch.randn(parameter.shape, generator=generator)
                if step == 2 and place == 3:
                    parameter.grad = None  # one that took no part
            optimizer.step()
        outcomes.append((parameters, optimizer.state_dict()))
    (ours, state), (theirs, other) = outcomes
    for mine, other_one in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine, other_one, atol=2e-4, rtol=0)
    assert state["param_groups"] == other["param_groups"]
    assert state["state"].keys() == other["state"].keys()
    for place, momentum in state["state"].items():
        torch.testing.assert_close(momentum, other["state"][place], atol=1e-6, rtol=1e-5)


def test_a_resumed_run_may_change_between_the_two():
    parameters = [torch.ones(3, 4)]
    parameters[0].grad = torch.eye(3, 4)
    first = Muon(parameters)
    first.step()
    second = GroupedMuon(parameters)
    second.load_state_dict(first.state_dict())
    assert torch.equal(second.state[parameters[0]]["momentum_buffer"], 0.05 * torch.eye(3, 4))


def test_singular_values_come_near_1():
    matrices = torch.randn(5, 16, 40, generator=torch.Generator().manual_seed(0))
    defaults = GroupedMuon([torch.ones(2, 2)]).defaults
    turned = orthogonal(matrices, defaults["ns_coefficients"], 5, 1e-7)
    values = torch.linalg.svdvals(turned.float())
    assert values.min() > 0.5 and values.max() < 1.3
    back = orthogonal(matrices.mT, defaults["ns_coefficients"], 5, 1e-7)
    torch.testing.assert_close(back.mT, turned)


def test_nothing_to_do_is_no_error():
    lone = torch.ones(2, 2)
    GroupedMuon([lone]).step()
    assert torch.equal(lone, torch.ones(2, 2))
