"""recallgap evaluate CHECKPOINT CORPUS -o OUT: the loss of every token of a corpus under a model."""

import json
from pathlib import Path
from typing import Annotated

import typer


def evaluate(
    checkpoint: Annotated[str, typer.Argument(help="Folder with safetensors, .gguf file or hub name.")],
    corpus: Annotated[Path, typer.Argument(help="Corpus folder.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder of the losses.", show_default=False)],
    policy: Annotated[str, typer.Option(help="How the stream is cut: packed or document.")] = "packed",
    context_len: Annotated[int, typer.Option(help="Tokens per context.")] = 2048,
    window: Annotated[
        int | None, typer.Option(help="Cut each context further: the most that the model sees.")
    ] = None,
    dtype: Annotated[str, typer.Option(help="Of the weights: float32, bfloat16, float16.")] = "float32",
    prefix: Annotated[str, typer.Option(help="Id before every window: none, bos, eos.")] = "none",
    batch_tokens: Annotated[int, typer.Option(help="Tokens per forward; speed and memory only.")] = 4096,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    revision: Annotated[str | None, typer.Option(help="Revision of a hub model.")] = None,
    trust_remote_code: Annotated[
        bool, typer.Option("--trust-remote-code", help="Run Python code that lies with the model.")
    ] = False,
    name: Annotated[str | None, typer.Option(help="What tables call the model; else its own name.")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace what is there.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the results as JSON.")] = False,
):
    """Compute the loss of every token. The same command continues an interrupted one."""
    from recallgap.artifact import staging_path
    from recallgap.corpus import open_corpus
    from recallgap.evaluate import EvaluateConfig, find_checkpoint
    from recallgap.evaluate import evaluate as compute

    config = EvaluateConfig(
        policy=policy,
        context_len=context_len,
        window=window,
        dtype=dtype,
        prefix=prefix,
        batch_tokens=batch_tokens,
        device=device,
    )
    opened = open_corpus(corpus)
    files = find_checkpoint(checkpoint, name=name, revision=revision, trust_remote_code=trust_remote_code)
    continued = staging_path(out).exists()
    losses = compute(files, opened, out, config=config, overwrite=overwrite)
    seconds = json.loads((out / "run.json").read_text())["seconds"]
    if as_json:
        print(json.dumps({"losses": str(out), "fingerprint": losses.fingerprint, **losses.results}, indent=1))
        return
    found = losses.results
    rate = "continued" if continued else f"{found['n_tokens'] / max(seconds, 1e-3):,.0f} tokens/s"
    print(
        f"losses {out}: {files.name}, perplexity {found['perplexity']:.4f} over {found['n_scored']:,} "
        f"scored of {found['n_tokens']:,} tokens, {rate}"
    )
