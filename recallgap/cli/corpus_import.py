"""recallgap corpus import FILE...: token files that exist already, opened as a corpus where they lie."""

import time
from pathlib import Path
from typing import Annotated

import typer


def import_(
    paths: Annotated[list[Path], typer.Argument(help="Files of token ids, in the order wanted.")],
    format: Annotated[
        str, typer.Option(help="One of `recallgap list formats`, such as megatron.", show_default=False)
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder of the corpus.", show_default=False)],
    tokenizer: Annotated[
        str | None, typer.Option(help="Tokenizer that made the ids: tokenizer.json, folder or hub name.")
    ] = None,
    vocab_size: Annotated[
        int | None, typer.Option(help="In place of a tokenizer: every id is below it.")
    ] = None,
    separator_id: Annotated[
        int | None, typer.Option(help="Id that ends documents; splits where no index names them.")
    ] = None,
    domain: Annotated[str, typer.Option(help="Domain of all documents.")] = "",
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace what is there.")] = False,
):
    """Open token files as a corpus. The ids are read once, checked and hashed, and stay where they are."""
    from recallgap.corpus import ImportConfig, import_corpus

    config = ImportConfig(
        format=format,
        tokenizer=tokenizer,
        vocab_size=vocab_size,
        separator_id=separator_id,
        domain=domain,
    )
    is_there, started = out.exists() and not overwrite, time.monotonic()
    corpus = import_corpus(paths, out, config=config, overwrite=overwrite)
    found, seconds = corpus.results, time.monotonic() - started
    print(
        f"{out}: {found['n_tokens']:,} tokens in {found['n_documents']:,} documents (from "
        f"{found['documents_from']}), {_separators(corpus)}, {found['n_files']} file(s) of {found['dtype']}; "
        f"{'there already' if is_there else f'{seconds:.1f} s'}"
    )


def _separators(corpus):
    if corpus.separator_id is None:
        return "no separator named"
    return f"{corpus.results['n_separators']:,} separators (id {corpus.separator_id})"
