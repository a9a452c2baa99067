"""recallgap corpus build INPUT...: text to a tokenized corpus; `import` and `info` have their own files."""

import json
from pathlib import Path
from typing import Annotated

import typer

from recallgap.cli import corpus_import, corpus_info

app = typer.Typer(no_args_is_help=True, help="Make a tokenized corpus from text or token files, or show one.")
app.command("import")(corpus_import.import_)
app.command("info")(corpus_info.info)


@app.command("build")
def build(
    inputs: Annotated[list[str], typer.Argument(help="Files, folders or datasets, in the order wanted.")],
    tokenizer: Annotated[
        str, typer.Option(help="tokenizer.json, folder, .gguf file or hub name.", show_default=False)
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder of the corpus.", show_default=False)],
    separator: Annotated[
        str, typer.Option(help="Token that ends a document: auto (EOS), none, or it.")
    ] = "auto",
    format: Annotated[
        str | None, typer.Option(help="text, jsonl, parquet, datasets; else by suffix.")
    ] = None,
    text_field: Annotated[str, typer.Option(help="Field with the text; dots for nested ones.")] = "text",
    domain_field: Annotated[
        str | None, typer.Option(help="Field with the domain; else meta.pile_set_name if there.")
    ] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Refuse invalid UTF-8.")] = False,
    max_documents: Annotated[int | None, typer.Option(help="Take the first so many documents.")] = None,
    shard_tokens: Annotated[int, typer.Option(help="Tokens at which a shard is closed.")] = 1 << 27,
    config: Annotated[str | None, typer.Option(help="Configuration of a hub dataset.")] = None,
    split: Annotated[str | None, typer.Option(help="Split of a dataset.")] = None,
    revision: Annotated[str | None, typer.Option(help="Revision of a hub dataset.")] = None,
    streaming: Annotated[
        bool, typer.Option("--streaming", help="Do not keep a hub dataset on disk.")
    ] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace what is there.")] = False,
):
    """Tokenize text into a corpus. The same command continues an interrupted one."""
    from recallgap.artifact import staging_path
    from recallgap.corpus import BuildConfig, build_corpus

    settings = BuildConfig(
        tokenizer=tokenizer,
        separator=separator,
        format=format,
        text_field=text_field,
        domain_field=domain_field,
        strict=strict,
        max_documents=max_documents,
        shard_tokens=shard_tokens,
        dataset_config=config,
        dataset_split=split,
        dataset_revision=revision,
        streaming=streaming,
    )
    found = "there already" if out.exists() and not overwrite else None
    if found is None and any(staging_path(out).glob("tokens-*.idx")):
        found = "continued"
    corpus = build_corpus(inputs, out, config=settings, overwrite=overwrite)
    seconds = json.loads((out / "run.json").read_text())["seconds"]
    rate = f"{corpus.n_tokens / max(seconds, 1e-3):,.0f} tokens/s"
    print(f"{out}: {_summary(corpus.artifact.results)}; {found or rate}")


def _summary(results):
    """What the corpus holds, and what of its input was skipped or replaced."""
    parts = [f"{results['n_tokens']:,} tokens in {results['n_documents']:,} documents"]
    parts.append(f"{results['n_bytes'] / max(results['n_tokens'], 1):.2f} bytes/token")
    parts.append(f"skipped {results['n_empty']:,} empty documents")
    parts.append(f"replaced {results['n_replaced']:,} pieces of invalid UTF-8")
    if results["n_separators_in_text"]:
        parts.append(f"{results['n_separators_in_text']:,} separators inside texts")
    return ", ".join(parts)
