"""To and from Hugging Face: `export` writes a model as a folder, `import` reads one.

Neither trains. `export` takes the weights of stage `evaluate.of`, or of `checkpoint=`; what
`import` leaves can be given to other stages with `checkpoint=`.
"""

import time
from pathlib import Path

from chessrl import compute
from chessrl.artifacts import Result
from chessrl.board import tokens
from chessrl.config import Run
from chessrl.policy.export import WEIGHTS, Vocabulary, export_model
from chessrl.policy.foreign import read_folder
from chessrl.policy.weights import load_model, save_model
from chessrl.stages.runs import folder, inherited, weights_file, working

VOCABULARY = Vocabulary(
    tokens=tokens.TOKENS,
    hash=tokens.VOCABULARY_HASH,
    bos=tokens.BOS,
    eos=tokens.EOS,
    unk=tokens.ID["<unk>"],
    pad=tokens.PAD,
    stops=(tokens.EOS, tokens.CALL_ENV),
)
RELEASED = tokens.ID["..."] + 1
"""Tokens of the released base models of the chess study, the first of ours."""


def export(run: Run) -> Result:
    """Write the model that stage `evaluate.of` left, or that of `checkpoint=`."""
    out = folder(run, "export")
    if (done := out.finished) is not None:
        return done
    began = time.monotonic()
    model = load_model(weights_file(run, run.evaluate.of), tokens.VOCABULARY_HASH)
    result = inherited(run, "export")
    result.of, result.model = run.evaluate.of, model.config.name
    result.n_params = compute.parameters(model.config, len(tokens.TOKENS))
    with working(run, out, "export"):
        export_model(out.path, model, VOCABULARY)
        result.measures = {"bytes": float((out.path / WEIGHTS).stat().st_size)}
        result.seconds = time.monotonic() - began
        out.write(result)
    return result


def import_model(run: Run) -> Result:
    """Read the model in `source=` and leave its weights as a training stage would."""
    out = folder(run, "import")
    if (done := out.finished) is not None:
        return done
    began = time.monotonic()
    read = read_folder(Path(run.source), VOCABULARY, RELEASED, run.seed)
    result = inherited(run, "import")
    result.model = read.model.config.name
    result.n_params = compute.parameters(read.model.config, len(tokens.TOKENS))
    with working(run, out, "import"):
        out.describe({"source": run.source, "changes": read.changes, "tokenizer": read.tokenizer})
        save_model(
            out.checkpoints / WEIGHTS, read.model, tokens.VOCABULARY_HASH, imported=read.changes
        )
        result.seconds = time.monotonic() - began
        out.write(result)
    return result
