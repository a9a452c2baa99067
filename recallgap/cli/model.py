"""recallgap model RECIPE: what a model of the paper's shapes is made of and what it costs."""

import json
from dataclasses import asdict
from typing import Annotated

import typer


def model(
    recipe: Annotated[
        str, typer.Argument(help="A recipe (`recallgap list recipes`) or a recallgap config.json.")
    ],
    context_len: Annotated[int, typer.Option(help="Tokens of a context and of long filters.")] = 2048,
    as_json: Annotated[bool, typer.Option("--json", help="Print it as JSON, with every option.")] = False,
):
    """Show parameters by part, state and operations a token at a context length, and layers of a recipe."""
    from recallgap.models.describe import describe_model
    from recallgap.pretrain.recipe import model_config_of

    found = describe_model(model_config_of(recipe, context_len))
    if as_json:
        print(json.dumps({"recipe": recipe, **found}, indent=2))
        return
    parts = found["parameters"]
    head = "tied head" if found["tied_head"] else "head of its own"
    print(f"{recipe}: width {found['d_model']}, vocabulary {found['vocab_size']:,}, {head}")
    print(f"parameters {parts['total']:,}")
    for part, n in parts.items():
        if part != "total":
            print(f"  {part:20} {n:>15,} {n / parts['total']:>6.1%}")
    print(f"at contexts of {found['context_len']:,} tokens, one sequence:")
    print(f"  state           {found['state_bytes']:>15,} bytes (float32)")
    print(f"  operations      {found['flops_per_token']:>15,} a token (forward)")
    print("layers")
    for layer in found["layers"]:
        print(f"  {_in_words(layer)}")


def _in_words(layer):
    """`12 x attention(n_heads=12) + swiglu(d_inner=2048): 0-11`; options at their defaults are left out."""
    from recallgap.models.mixers import MIXERS
    from recallgap.models.state_mixers import STATE_MIXERS

    mixer = _call(layer["mixer"], MIXERS[layer["mixer"]], layer)
    state_mixer = layer["state_mixer"]
    inside = _call(state_mixer["name"], STATE_MIXERS[state_mixer["name"]], state_mixer)
    return f"{len(layer['at'])} x {mixer} + {inside}: {_ranges(layer['at'])}"


def _call(name, cls, given):
    changed = {key: given[key] for key, default in asdict(cls.Options()).items() if given[key] != default}
    return f"{name}({', '.join(f'{key}={value}' for key, value in changed.items())})" if changed else name


def _ranges(numbers):
    """`0-5`, `0-46 by 2`, else `1, 3, 7`."""
    step = numbers[1] - numbers[0] if len(numbers) > 2 else 0
    if step and numbers == list(range(numbers[0], numbers[-1] + 1, step)):
        return f"{numbers[0]}-{numbers[-1]}" + (f" by {step}" if step > 1 else "")
    return ", ".join(map(str, numbers))
