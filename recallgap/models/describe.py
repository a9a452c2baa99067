"""What a model is made of and what it costs, from its config alone: built on the meta device."""

import torch

from recallgap.models.lm import RecallGapForCausalLM

STATE_BYTES = 4
"""A number of the recurrent state or of the key-value cache, in float32."""
PARTS = {"embed": "embedding", "embed_norm": "norms", "norm": "norms", "head": "head"}


def describe_model(config):
    """Parameters by part; state in bytes and operations a token at contexts of `config.context_len`; layers.

    `flops_per_token` counts one forward; a training step costs about three times as much. State mixers count
    too. A tied head has operations but no parameters of its own. `layers` holds each kind of layer once, with
    the numbers of the layers that are of it.
    """
    with torch.device("meta"):
        model = RecallGapForCausalLM(config)
    T = config.context_len
    mixers = [mixer for block in model.blocks for mixer in (block.mixer, block.state_mixer)]
    parameters = _parameters_by_part(model)
    return {
        "parameters": {"total": sum(parameters.values()), **parameters},
        "context_len": T,
        "state_bytes": STATE_BYTES * sum(mixer.state_size(T) for mixer in mixers),
        "flops_per_token": round(sum(mixer.flops(T) for mixer in mixers) + 2 * model.head.weight.numel()),
        "d_model": config.d_model,
        "vocab_size": config.vocab_size,
        "tied_head": config.tie_word_embeddings,
        "layers": _kinds(config.layers),
    }


def _kinds(layers):
    kinds = []
    for number, layer in enumerate(layers):
        known = next((kind for kind in kinds if {**kind, "at": None} == {**layer, "at": None}), None)
        if known is None:
            kinds.append({"at": [number], **layer})
        else:
            known["at"].append(number)
    return kinds


def _parameters_by_part(model):
    """Sums over unique parameters: embedding, head, norms, and each kind of mixer and state mixer."""
    sums, seen = {}, set()
    for name, p in model.named_parameters():
        if id(p) not in seen:
            seen.add(id(p))
            part = _part(name, model.config.layers)
            sums[part] = sums.get(part, 0) + p.numel()
    return sums


def _part(name, layers):
    first, *rest = name.split(".")
    if first != "blocks":
        return PARTS[first]
    layer, where = layers[int(rest[0])], rest[1]
    if where == "mixer":
        return layer["mixer"]
    return layer["state_mixer"]["name"] if where == "state_mixer" else "norms"
