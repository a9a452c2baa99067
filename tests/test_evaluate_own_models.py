"""Models of recallgap.models are checkpoints like any other."""

import numpy as np
import torch
from models import V, random_corpus

from recallgap.evaluate import EvaluateConfig, evaluate
from recallgap.models import RecallGapConfig, RecallGapForCausalLM
from recallgap.slices import open_losses


def test_a_saved_hybrid_is_evaluated_with_its_own_losses(tmp_path):
    torch.manual_seed(0)
    layers = ["base_conv", {"mixer": "selective_attention", "selection": "programmatic", "n_heads": 2}]
    config = RecallGapConfig(vocab_size=V, d_model=16, layers=layers, context_len=16)
    model = RecallGapForCausalLM(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    model.save_pretrained(tmp_path / "hybrid")
    corpus = random_corpus(tmp_path / "corpus", (16,))
    made = evaluate(tmp_path / "hybrid", corpus, tmp_path / "out", config=EvaluateConfig(context_len=16))
    assert made.results["head"] == "tiled"
    ids = torch.from_numpy(corpus.ids(0, 16).astype(np.int64))
    with torch.no_grad():
        logits_TV = model(ids[None]).logits[0, :-1].double()
    expected = torch.nn.functional.cross_entropy(logits_TV, ids[1:], reduction="none")
    np.testing.assert_allclose(open_losses(made.path).loss_T[1:], expected.numpy(), atol=1e-5)
