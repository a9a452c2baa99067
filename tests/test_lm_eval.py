"""docs/lm-evaluation-harness.md as a test: a saved model of ours under EleutherAI's harness, offline.

The harness' rolling log-likelihood of a text that fits one window is our document policy with an EOS prefix.
"""

import json
import math

import pytest
import torch
from transformers import PreTrainedTokenizerFast

from recallgap.corpus import BuildConfig, build_corpus
from recallgap.evaluate import EvaluateConfig, evaluate
from recallgap.models import RecallGapConfig, RecallGapForCausalLM

lm_eval = pytest.importorskip("lm_eval", reason="needs the extra recallgap[eval]")
TEXTS = ["the quick brown fox jumps over the lazy dog", "and the dog jumps over the fox again"]
TASK = """
task: local_text
dataset_path: json
dataset_kwargs: {{data_files: {{test: {data}}}}}
test_split: test
output_type: loglikelihood_rolling
doc_to_text: ""
doc_to_target: "{{{{text}}}}"
metric_list: [{{metric: bits_per_byte, higher_is_better: false}}]
"""


@pytest.fixture
def model_folder(tmp_path, tokenizer_file):
    torch.manual_seed(0)
    layers = ["base_conv", {"mixer": "attention", "n_heads": 2}]
    config = RecallGapConfig(vocab_size=300, d_model=16, layers=layers, context_len=128, eos_token_id=0)
    RecallGapForCausalLM(config).save_pretrained(tmp_path / "model")
    tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(tokenizer_file), eos_token="<|endoftext|>")
    tokenizer.save_pretrained(tmp_path / "model")
    return tmp_path / "model"


def test_the_harness_gives_our_bits_per_byte(tmp_path, model_folder, monkeypatch):
    for name in ("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE"):
        monkeypatch.setenv(name, "1")
    monkeypatch.setenv("HF_HOME", str(tmp_path / "cache"))
    (tmp_path / "text.jsonl").write_text("\n".join(json.dumps({"text": text}) for text in TEXTS))
    (tmp_path / "tasks").mkdir()
    (tmp_path / "tasks" / "local.yaml").write_text(TASK.format(data=tmp_path / "text.jsonl"))
    found = lm_eval.simple_evaluate(
        model="hf",
        model_args={"pretrained": str(model_folder), "dtype": "float32", "max_length": 128},
        tasks=["local_text"],
        task_manager=lm_eval.tasks.TaskManager(include_path=str(tmp_path / "tasks"), include_defaults=False),
        device="cpu",
        bootstrap_iters=0,
    )
    theirs = found["results"]["local_text"]["bits_per_byte,none"]

    build = BuildConfig(tokenizer=str(model_folder), separator="none")
    corpus = build_corpus([tmp_path / "text.jsonl"], tmp_path / "corpus", config=build)
    config = EvaluateConfig(policy="document", context_len=127, prefix="eos")
    ours = evaluate(model_folder, corpus, tmp_path / "losses", config=config)
    n_bytes = sum(len(text) for text in TEXTS)
    assert ours.results["n_scored"] == corpus.n_tokens
    assert ours.results["loss_sum"] / math.log(2) / n_bytes == pytest.approx(theirs, rel=1e-6)
