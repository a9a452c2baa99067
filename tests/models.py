"""Tiny causal language models for tests: random ones of several families, and two whose losses are known.

Legend: B rows, T positions, V vocabulary.
"""

import numpy as np
import pyarrow.parquet as pq
import torch
import transformers
from transformers import PreTrainedConfig, PreTrainedModel
from transformers.modeling_outputs import CausalLMOutput

from recallgap.corpus import write_corpus

torch.set_num_threads(1)  # on models this small, threads only wait for each other
V = 61
POSITIONS = 48
SMALL = {
    "vocab_size": V,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
}
LLAMA = {**SMALL, "intermediate_size": 32, "max_position_embeddings": POSITIONS}
FAMILIES = {
    "llama": ("Llama", {**LLAMA, "tie_word_embeddings": False}),
    "llama_tied": ("Llama", {**LLAMA, "tie_word_embeddings": True}),
    "gpt2": ("GPT2", {**SMALL, "n_positions": POSITIONS}),
    "gpt_neox": ("GPTNeoX", LLAMA),
    "mamba": ("Mamba", {**SMALL, "state_size": 4}),
    "phi": ("Phi", LLAMA),
    "gemma2": ("Gemma2", {**LLAMA, "head_dim": 8, "num_key_value_heads": 1, "final_logit_softcapping": 2.0}),
    "granite": ("Granite", {**LLAMA, "logits_scaling": 6.0}),
    "cohere": ("Cohere", {**LLAMA, "logit_scale": 0.3}),
}
"""Name: (prefix of the config class, config). phi's head has a bias; the last three change its output."""


def random_model(family, *, dropout=0.0):
    """A model of FAMILIES with random weights, the same each time; in training mode, as it is made."""
    prefix, settings = FAMILIES[family]
    config = getattr(transformers, f"{prefix}Config")(**settings)
    for name in ("attention_dropout", "resid_pdrop", "embd_pdrop", "attn_pdrop", "hidden_dropout"):
        if hasattr(config, name):
            setattr(config, name, dropout)
    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_config(config)
    with torch.no_grad():  # larger than the usual start, so that predictions differ from token to token
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    return model


class TableConfig(PreTrainedConfig):
    model_type = "table"

    def __init__(self, vocab_size=V, **settings):
        self.vocab_size = vocab_size
        super().__init__(**settings)


class TableModel(PreTrainedModel):
    """The logits of the next token are a row of a V x V table, chosen by the present one. No linear head."""

    config_class = TableConfig

    def __init__(self, config):
        super().__init__(config)
        self.table = torch.nn.Embedding(config.vocab_size, config.vocab_size)
        self.post_init()

    def get_input_embeddings(self):
        return self.table

    def forward(self, input_ids, use_cache=False):
        return CausalLMOutput(logits=self.table(input_ids))


def successor_model(vocab_size=V):
    """Certain that i + 1 follows i, and vocab_size - 1 is followed by 0."""
    model = TableModel(TableConfig(vocab_size))
    model.table.weight.data = 200.0 * torch.eye(vocab_size).roll(1, dims=1)
    return model


def uniform_model():
    """A Llama whose head is 0: every token is as likely as any other."""
    model = random_model("llama")
    torch.nn.init.zeros_(model.lm_head.weight)
    return model


def random_corpus(path, lengths, vocab_size=V):
    """A corpus of documents with these numbers of random ids."""
    rng = np.random.default_rng(0)
    return write_corpus(path, [rng.integers(0, vocab_size, n) for n in lengths], vocab_size=vocab_size)


def losses_in(artifact):
    """The losses of an artifact, float32, NaN where null."""
    columns = [pq.read_table(path)["loss"].to_numpy() for path in artifact.files("losses-")]
    return np.concatenate(columns)
