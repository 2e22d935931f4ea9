"""From a budget to a configuration: `pretrain.tokens` and `rl.steps` follow from `budget.flops`."""

import dataclasses

from chessrl import compute
from chessrl.board import tokens
from chessrl.config import Run


def budgeted(run: Run) -> Run:
    """The configuration with what its budget decides; as it is where there is none.

    Raises:
        InputError: the budget is too small for the stages between.
    """
    if run.budget.flops is None:
        return run
    active = compute.active_parameters(run.model, len(tokens.TOKENS))
    split = compute.split(run.budget, active, run.rl)
    return dataclasses.replace(
        run,
        pretrain=dataclasses.replace(run.pretrain, tokens=split.tokens),
        rl=dataclasses.replace(run.rl, steps=split.steps),
    )
