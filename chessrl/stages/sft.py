"""Fourth stage: the model learns to think in traces and to answer."""

from chessrl.artifacts import Result
from chessrl.board import tokens
from chessrl.config import Run
from chessrl.policy.weights import load_model
from chessrl.stages.batches import Dataset, Schedule
from chessrl.stages.harvest import documents_of
from chessrl.stages.pretrain import train_on_documents
from chessrl.stages.runs import folder, parent, weights_file, working


def sft(run: Run) -> Result:
    """Fine-tune the pretrained model on traces, a harvest, or both for `sft.epochs` passes."""
    out = folder(run, "sft")
    if (done := out.finished) is not None:
        return done
    config = run.sft
    folders = []
    if config.data != "harvest":
        folders.append(parent(run, "traces").path / "train")
    if config.harvest:
        folders.append(documents_of(run, config.harvest))
    schedule = Schedule(
        Dataset(*folders),
        batch_tokens=config.batch_tokens,
        context=config.context,
        seed=run.seed,
        pad=tokens.PAD,
        epochs=config.epochs,
        whole=True,
    )
    model = load_model(weights_file(run, "pretrain"), tokens.VOCABULARY_HASH)
    with working(run, out, "sft"):
        return train_on_documents(
            run, "sft", out, model.train(), schedule, config.optim,
            games=False, microbatch_tokens=config.microbatch_tokens,
            checkpoint_every=config.checkpoint_every, log_every=config.log_every,
        )  # fmt: skip
