"""Which parameters the optimizer treats alike: learning rate and weight decay of each."""

import math

NO_DECAY = 0.0


def parameter_groups(model, learning_rate, weight_decay):
    """Groups for AdamW: [{"params", "names", "lr", "weight_decay"}], sorted, every trained parameter once.

    A matrix decays; norms and biases (fewer than two dimensions) do not. What a mixer's `param_rules` name
    has the rule's decay and the learning rate, scaled and bounded by the rule.
    """
    groups = {}
    for name, parameter in model.named_parameters():
        if not parameter.requires_grad:
            continue
        key = _treatment(parameter, _rule_of(model, name), learning_rate, weight_decay)
        groups.setdefault(key, []).append((name, parameter))
    return [
        {
            "params": [parameter for _, parameter in members],
            "names": [name for name, _ in members],
            "lr": own_rate,
            "weight_decay": own_decay,
        }
        for (own_rate, own_decay), members in sorted(groups.items())
    ]


def _treatment(parameter, rule, learning_rate, weight_decay):
    if rule is None:
        return learning_rate, weight_decay if parameter.dim() >= 2 else NO_DECAY
    bound = math.inf if rule.lr_max is None else rule.lr_max
    return min(learning_rate * rule.lr_scale, bound), weight_decay if rule.weight_decay else NO_DECAY


def _rule_of(model, name):
    """The `ParamRule` that the mixer or state mixer owning a parameter has for it, or None."""
    parts = name.split(".")
    if parts[0] != "blocks" or parts[2] not in ("mixer", "state_mixer"):
        return None
    mixer = getattr(model.blocks[int(parts[1])], parts[2])
    rules = mixer.param_rules() if hasattr(mixer, "param_rules") else {}
    own_name = ".".join(parts[3:])
    return next((rule for pattern, rule in rules.items() if pattern in own_name), None)
