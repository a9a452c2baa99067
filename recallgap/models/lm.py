"""One causal language model for every mixer, as a Hugging Face citizen.

    h = embed(ids)                                              (and a norm, if asked for)
    h = h + mixer(norm(h)),  h = h + state_mixer(norm(h))        in each layer
    logits = head(norm(h))

Padding is undone rather than masked: each row's real tokens are moved to the front, run, and moved back, so
that every mixer sees the sequence as if it stood alone.
Legend: B batch, T position, D width, V vocabulary.
"""

import torch
from torch import nn
from transformers import GenerationMixin, PreTrainedModel
from transformers.modeling_outputs import CausalLMOutput
from transformers.utils import can_return_tuple

from recallgap.errors import CheckpointError, ConfigError
from recallgap.models.config import RecallGapConfig, mixer_options, split
from recallgap.models.mixer import MixerContext, Place, options_of
from recallgap.models.mixers import MIXERS
from recallgap.models.state_mixers import INIT_STD, STATE_MIXERS

NAMED_WEIGHTS = 3
"""How many missing or surplus weights an error names."""
TINY_STD, HEAD_GAIN = 1e-4, 0.5
"""Of an embedding that a norm follows, and of the orthogonal head that goes with it."""
IGNORED_LABEL = -100
"""PyTorch's and transformers' label of a position that does not count."""


class Block(nn.Module):
    """A mixer and a state mixer, each behind a norm and beside a residual."""

    def __init__(self, config, layer):
        super().__init__()
        place = Place(layer=layer, n_layers=len(config.layers), context_len=config.context_len)
        entry = config.layers[layer]
        self.mixer_norm = make_norm(config)
        self.mixer = build(MIXERS, entry["mixer"], mixer_options(entry), config.d_model, place)
        self.state_mixer_norm = make_norm(config)
        name, options = split(entry["state_mixer"])
        self.state_mixer = build(STATE_MIXERS, name, options, config.d_model, place)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, h_BTD, context):
        h_BTD = h_BTD + self.dropout(self.mixer(self.mixer_norm(h_BTD), context))
        return h_BTD + self.dropout(self.state_mixer(self.state_mixer_norm(h_BTD), context))


def build(table, name, options, d_model, place):
    """A mixer or state mixer from its name and options."""
    cls = table[name]
    return cls(d_model, options_of(name, cls, options), place)


def make_norm(config):
    norm = nn.RMSNorm if config.norm == "rmsnorm" else nn.LayerNorm
    return norm(config.d_model, eps=config.norm_eps)


class RecallGapForCausalLM(PreTrainedModel, GenerationMixin):
    """A causal language model of any layer list. Logits (B, T, V) in the dtype of the head."""

    config_class = RecallGapConfig
    base_model_prefix = "model"
    _tied_weights_keys = {"head.weight": "embed.weight"}  # noqa: RUF012
    _no_split_modules = ["Block"]  # noqa: RUF012

    def __init__(self, config):
        super().__init__(config)
        self.embed = nn.Embedding(config.vocab_size, config.d_model)
        self.embed_norm = make_norm(config) if config.embed_norm else nn.Identity()
        self.blocks = nn.ModuleList(Block(config, layer) for layer in range(len(config.layers)))
        self.norm = make_norm(config)
        self.head = nn.Linear(config.d_model, config.vocab_size, bias=False)
        self.dropout = nn.Dropout(config.dropout)
        self.post_init()

    @classmethod
    def from_pretrained(cls, *args, output_loading_info=False, **kwargs):
        """As transformers', but CheckpointError where weights are missing, surplus or of another shape, which
        are a warning there (or a long report). With `output_loading_info` the caller judges."""
        if output_loading_info or kwargs.get("ignore_mismatched_sizes"):
            return super().from_pretrained(*args, output_loading_info=output_loading_info, **kwargs)
        kwargs["ignore_mismatched_sizes"] = True
        model, report = super().from_pretrained(*args, output_loading_info=True, **kwargs)
        _refuse_misfits(report, args[0] if args else kwargs.get("pretrained_model_name_or_path"))
        return model

    def get_input_embeddings(self):
        return self.embed

    def set_input_embeddings(self, embedding):
        self.embed = embedding

    def get_output_embeddings(self):
        return self.head

    def set_output_embeddings(self, head):
        self.head = head

    @classmethod
    def is_custom_code(cls):
        """No: transformers does not initialise a module of custom code whose own parameters are loaded,
        nor one that has none, like a mixer whose weights are in its parts."""
        return False

    @torch.no_grad()
    def _init_weights(self, module):
        """Each mixer fills its own parameters; here only what the model itself owns. All by torch.nn.init or
        `fill_`, which do not overwrite weights that were loaded."""
        if hasattr(module, "init_weights") and not isinstance(module, PreTrainedModel):
            module.init_weights()
        elif module is self.embed and self.config.embed_norm:
            nn.init.normal_(module.weight, std=TINY_STD)
        elif module is self.head and self.config.embed_norm:  # RWKV-4's, RWKV-v4/src/model.py
            V, D = module.weight.shape
            nn.init.orthogonal_(module.weight, gain=HEAD_GAIN * max(V / D, 1) ** 0.5)
        elif module is self.embed or module is self.head:
            nn.init.normal_(module.weight, std=INIT_STD)
        elif isinstance(module, nn.RMSNorm | nn.LayerNorm):
            nn.init.ones_(module.weight)
            if getattr(module, "bias", None) is not None:
                nn.init.zeros_(module.bias)

    @can_return_tuple
    def forward(
        self, input_ids, attention_mask=None, labels=None, logits_to_keep=0, return_logits=True, **kwargs
    ):
        """Logits of every position, or of the last `logits_to_keep`; with labels (B, T) the shifted loss too,
        or alone without `return_logits` (whoever wraps the model then has none to copy).

        attention_mask (B, T): 0 for padding, which may stand on either side of a row but not inside it.
        """
        self._check(input_ids)
        real_BT = back_BT = None
        if attention_mask is not None and not attention_mask.all():
            input_ids, real_BT, back_BT = _to_front(input_ids, attention_mask)
        context = MixerContext(ids_BT=input_ids, real_BT=real_BT)
        h_BTD = self.dropout(self.embed_norm(self.embed(input_ids)))
        for block in self.blocks:
            h_BTD = block(h_BTD, context)
        h_BTD = self.norm(h_BTD)
        if back_BT is not None:
            h_BTD = h_BTD.gather(1, back_BT.unsqueeze(-1).expand_as(h_BTD))
        keep = slice(-logits_to_keep, None) if isinstance(logits_to_keep, int) else logits_to_keep
        logits_BTV = self.head(h_BTD[:, keep])
        if labels is None:
            return CausalLMOutput(logits=logits_BTV)
        loss = self.loss_function(logits_BTV, labels, vocab_size=self.config.vocab_size, **kwargs)
        if self.training:
            loss = loss + _auxiliary_loss(context, labels, kwargs.get("num_items_in_batch"))
        return CausalLMOutput(loss=loss, logits=logits_BTV if return_logits else None)

    def prepare_inputs_for_generation(self, input_ids, attention_mask=None, logits_to_keep=0, **kwargs):  # noqa: ARG002
        """Every step runs the whole sequence: no cache is kept."""
        return {"input_ids": input_ids, "attention_mask": attention_mask, "logits_to_keep": logits_to_keep}

    def _check(self, ids_BT):
        T, limit = ids_BT.shape[1], self.config.context_len
        if limit < T:
            raise ConfigError(
                f"running a model built for contexts of {limit} tokens on {T}: cut the input shorter"
            )
        if T == 0:
            raise ConfigError("running a model on rows of 0 tokens: at least one is needed")
        if ids_BT.numel() == 0 or ids_BT.is_meta or torch.compiler.is_compiling():
            return
        lowest, highest = (int(end) for end in torch.aminmax(ids_BT))
        if lowest < 0 or highest >= self.config.vocab_size:
            wrong, V = lowest if lowest < 0 else highest, self.config.vocab_size
            raise ConfigError(
                f"running a model of {V} tokens on id {wrong}: ids must come from the model's own tokenizer"
            )


def _refuse_misfits(report, source):
    """CheckpointError where weights were missing, surplus or of another shape."""
    for kind in ("missing", "unexpected", "mismatched"):
        names = sorted(key if isinstance(key, str) else key[0] for key in report[f"{kind}_keys"])
        if names:
            more = f" and {len(names) - NAMED_WEIGHTS} more" if len(names) > NAMED_WEIGHTS else ""
            raise CheckpointError(
                f"loading {source}: it has {kind} weights: {', '.join(names[:NAMED_WEIGHTS])}{more}. "
                "Config and weights do not belong together"
            )


def _to_front(ids_BT, mask_BT):
    """Move each row's real tokens to the front; where these are, and the indices that move results back."""
    if mask_BT.shape != ids_BT.shape:
        raise ConfigError(f"attention_mask is {tuple(mask_BT.shape)}, but the ids are {tuple(ids_BT.shape)}")
    mask_BT = mask_BT.bool()
    first_B1 = mask_BT.int().argmax(1, keepdim=True)
    length_B1 = mask_BT.sum(1, keepdim=True)
    T = ids_BT.shape[1]
    t_1T = torch.arange(T, device=ids_BT.device).unsqueeze(0)
    if not torch.equal(mask_BT, (t_1T >= first_B1) & (t_1T < first_B1 + length_B1)):
        raise ConfigError(
            "attention_mask has a gap inside a row; padding may stand only before or after the tokens"
        )
    return ids_BT.gather(1, (t_1T + first_B1) % T), t_1T < length_B1, (t_1T - first_B1) % T


def _auxiliary_loss(context, labels_BT, num_items_in_batch):
    """The mixers' own losses; of a part of a batch (gradient accumulation) by its share of the labels."""
    total = sum(context.auxiliary_losses)
    if num_items_in_batch is None:
        return total
    return total * (labels_BT[:, 1:] != IGNORED_LABEL).sum() / num_items_in_batch
