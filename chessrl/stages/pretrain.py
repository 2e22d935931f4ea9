"""Second stage: the model learns to continue human games."""

from pathlib import Path

from chessrl import compute
from chessrl.artifacts import Result, RunFolder
from chessrl.board import tokens
from chessrl.config import OptimConfig, Run
from chessrl.policy.transformer import Transformer
from chessrl.policy.weights import load_model, new_model, save_model
from chessrl.stages.batches import Dataset, Schedule
from chessrl.stages.group import group
from chessrl.stages.harvest import documents_of
from chessrl.stages.language import fit_documents
from chessrl.stages.runs import folder, inherited, parent, working
from chessrl.stages.sharding import whole_weights
from chessrl.stages.trunk import branch_off, continue_metrics, spent_before

VOCABULARY_SIZE = len(tokens.TOKENS)


def pretrain(run: Run) -> Result:
    """Train on the prepared games for `pretrain.tokens` tokens.

    It is a new model, or that of `checkpoint=`; a harvest may be mixed in.
    """
    out = folder(run, "pretrain")
    if (done := out.finished) is not None:
        return done
    config = run.pretrain
    folders = [parent(run, "prepare").path / "train"]
    if config.harvest:
        folders.append(documents_of(run, config.harvest))
    schedule = Schedule(
        Dataset(*folders),
        batch_tokens=config.batch_tokens,
        context=config.context,
        seed=run.seed,
        pad=tokens.PAD,
        tokens=config.tokens,
        share=config.harvest_share if config.harvest else None,
    )
    if run.checkpoint:
        model = load_model(Path(run.checkpoint), tokens.VOCABULARY_HASH).train()
    else:
        model = new_model(run.model, VOCABULARY_SIZE, run.seed)
    start = branch_off(run, schedule, model) if config.optim.schedule == "wsd" else None
    with working(run, out, "pretrain"):
        if start is not None:
            continue_metrics(run, out, start)
        return train_on_documents(
            run, "pretrain", out, model, schedule, config.optim,
            games=config.harvest is None, microbatch_tokens=config.microbatch_tokens,
            checkpoint_every=config.checkpoint_every, log_every=config.log_every, start=start,
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
    start: Path | None = None,
) -> Result:
    """Train, save the weights and write the result: the common part of pretraining and SFT.

    In a group of processes rank 0 alone writes; the others return an empty result.

    Args:
        games: the documents are games, so that a loss per ply makes sense.
        microbatch_tokens: places in one backward pass of a process.
        start: training state to go on from, that of a trunk; its steps cost this run nothing.
    """
    leads = group().leads
    if leads:
        save_model(out.checkpoints / "start.safetensors", model, tokens.VOCABULARY_HASH)
    active = compute.active_parameters(model.config, VOCABULARY_SIZE)
    flops = compute.training_flops(active, schedule.tokens)
    seconds = fit_documents(
        run, stage, out, model, schedule, optim,
        steps=len(schedule), flops=flops, games=games, microbatch_tokens=microbatch_tokens,
        checkpoint_every=checkpoint_every, log_every=log_every, start=start,
    )  # fmt: skip
    result = inherited(run, stage)
    weights = whole_weights(model)
    if not leads:
        return result
    model = new_model(model.config, VOCABULARY_SIZE, run.seed)
    model.load_state_dict(weights)
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
        "flops_spent": flops - spent_before(schedule, active, start),
    }
    if schedule.mixed_epochs:
        result.measures["harvest_share"] = float(schedule.mixed_in[-1]) / schedule.tokens
        result.measures["harvest_epochs"] = schedule.mixed_epochs
    if model.config.experts:
        result.measures["active_params"] = float(active)
    result.seconds = seconds
    out.write(result)
    return result
