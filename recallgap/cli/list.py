"""recallgap list KIND: what a registry holds, one line an entry."""

import inspect
from typing import Annotated

import typer

from recallgap.registry import pick


def list_(
    kind: Annotated[
        str, typer.Argument(help="slices, policies, readers, formats, mixers, recipes or settings.")
    ],
):
    """List the slice families, context policies, text readers, token formats, mixers, recipes or settings
    of a pretraining that there are."""
    table = pick("registry", REGISTRIES, kind)()
    width = max(map(len, table))
    for name, entry in table.items():
        line = entry if isinstance(entry, str) else inspect.getdoc(entry).splitlines()[0]
        print(f"{name:{width}}  {line}")


def _slices():
    from recallgap.slices import SLICES

    return SLICES


def _policies():
    from recallgap.corpus.contexts import POLICIES

    return POLICIES


def _readers():
    from recallgap.corpus.readers import READERS

    return READERS


def _formats():
    from recallgap.corpus.formats import FORMATS

    return FORMATS


def _mixers():
    from recallgap.models.mixers import MIXERS

    return MIXERS


def _recipes():
    from recallgap.models.recipes import RECIPES

    return RECIPES


def _settings():
    from recallgap.pretrain.config import described_settings

    return described_settings()


REGISTRIES = {
    "slices": _slices,
    "policies": _policies,
    "readers": _readers,
    "formats": _formats,
    "mixers": _mixers,
    "recipes": _recipes,
    "settings": _settings,
}
