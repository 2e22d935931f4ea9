"""Second stage: the model learns to continue human games."""

from chessrl import compute
from chessrl.artifacts import Result, RunFolder
from chessrl.board import tokens
from chessrl.config import OptimConfig, Run
from chessrl.policy.machine import compile_blocks
from chessrl.policy.transformer import Transformer
from chessrl.policy.weights import new_model, save_model
from chessrl.stages.batches import Dataset, Schedule
from chessrl.stages.group import group
from chessrl.stages.language import LanguageModel
from chessrl.stages.runs import folder, inherited, parent, working
from chessrl.stages.training import fit, worth_compiling

VOCABULARY_SIZE = len(tokens.TOKENS)


def pretrain(run: Run) -> Result:
    """Train a new model on the prepared games for `pretrain.tokens` tokens."""
    out = folder(run, "pretrain")
    if (done := out.finished) is not None:
        return done
    config = run.pretrain
    schedule = Schedule(
        Dataset(parent(run, "prepare").path / "train"),
        batch_tokens=config.batch_tokens,
        context=config.context,
        seed=run.seed,
        pad=tokens.PAD,
        tokens=config.tokens,
    )
    model = new_model(run.model, VOCABULARY_SIZE, run.seed)
    with working(run, out, "pretrain"):
        return train_on_documents(
            run, "pretrain", out, model, schedule, config.optim,
            games=True, microbatch_tokens=config.microbatch_tokens,
            checkpoint_every=config.checkpoint_every, log_every=config.log_every,
        )  # fmt: skip


def train_on_documents(
    run: Run,
    stage: str,
    out: RunFolder,
    model: Transformer,
    schedule: Schedule,
    optim: OptimConfig,
    *,
    games: bool,
    microbatch_tokens: int,
    checkpoint_every: int,
    log_every: int,
) -> Result:
    """Train, save the weights and write the result: the common part of pretraining and SFT.

    In a group of processes rank 0 alone writes; the others return an empty result.

    Args:
        games: the documents are games, so that a loss per ply makes sense.
        microbatch_tokens: places in one backward pass of a process.
    """
    place = group()
    if place.leads:
        save_model(out.checkpoints / "start.safetensors", model, tokens.VOCABULARY_HASH)
    active = compute.active_parameters(model.config, VOCABULARY_SIZE)
    flops = compute.training_flops(active, schedule.tokens)
    if worth_compiling(run.trainer, flops):
        compile_blocks(model)
    module = LanguageModel(model, schedule, optim, stage, games=games)
    rows = -(-schedule.rows // place.size)
    shown = {"nats/token": "loss"} | ({"nats/ply": "nats_per_ply"} if games else {})
    seconds = fit(
        module,
        lambda step: schedule.batch(step).part(place.rank, place.size),
        label=stage,
        steps=len(schedule),
        folder=out,
        config=run.trainer,
        precision=run.trainer.precision,
        checkpoint_every=checkpoint_every,
        log_every=log_every,
        shown=shown,
        counted="tokens",
        watched=True,
        parts=-(-rows // max(microbatch_tokens // schedule.context, 1)),
    )
    result = inherited(run, stage)
    if not place.leads:
        return result
    save_model(out.checkpoints / "model.safetensors", model, tokens.VOCABULARY_HASH)
    result.model = model.config.name
    result.n_params = compute.parameters(model.config, VOCABULARY_SIZE)
    result.tokens[stage] = float(schedule.tokens)
    result.flops[stage] = flops
    mean_length = schedule.tokens / schedule.documents
    forward = compute.exact_forward_flops(
        model.config, VOCABULARY_SIZE, schedule.tokens, mean_length
    )
    result.exact_flops[stage] = 3 * forward
    result.measures = {
        "steps": float(len(schedule)),
        "epochs": schedule.epochs,
        "padding": schedule.padding,
        "documents_left_out": float(schedule.left_out),
    }
    if model.config.experts:
        result.measures["active_params"] = float(active)
    result.seconds = seconds
    out.write(result)
    return result
