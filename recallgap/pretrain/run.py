"""recipe + corpus -> checkpoint: a Hugging Face model folder with training.jsonl.

    config.json, generation_config.json, model.safetensors    the model, float32
    tokenizer.json, tokenizer_config.json                      of the corpus
    training.jsonl                                             see notes.py

While it runs, `.NAME.partial` beside the target holds training.jsonl and, in scratch/, the last two
checkpoints; the same command continues from the last of them, bitwise on one process.
"""

import contextlib
import inspect
import json
import os
import shutil
from dataclasses import asdict
from pathlib import Path

from recallgap.artifact import Opened, fingerprint_of, open_artifact, staging_path
from recallgap.errors import ConfigError
from recallgap.pretrain.checks import check_corpora, tell_length, tell_shared
from recallgap.pretrain.config import RunOptions
from recallgap.pretrain.order import DataOrder, PackedContexts
from recallgap.pretrain.recall import RecallWatch, SeenCounts, make_labels
from recallgap.progress import note
from recallgap.recall import LabelConfig
from recallgap.staging import SCRATCH, Staging, refuse_output, stage, up_to_date

KIND = "checkpoint"
LOG, SITTINGS = "training.jsonl", "sittings.jsonl"


class TrainedCheckpoint(Opened):
    """A finished pretraining, opened: a Hugging Face model folder."""

    def log(self):
        """The entries of training.jsonl."""
        from recallgap.pretrain.notes import read_log

        return read_log(self.path / LOG)


def pretrain(
    model_config,
    corpus,
    eval_corpus,
    out,
    *,
    config,
    labels=None,
    label_config=None,
    options=None,
    overwrite=False,
):
    """Train the model of a `RecallGapConfig` on `corpus`; writes folder `out`, returns a `TrainedCheckpoint`.

    config: a `PretrainConfig`. labels: `Labels` of `eval_corpus`; where they are None they are made, with
    `label_config`, in a folder recall-... beside `out`, which runs on the same corpora share. options: a
    `RunOptions`. Under torchrun every process calls this alike, and only the first gets the result. Where
    `out` holds this very result already it is opened; an unfinished one is continued.
    ConfigError, CorpusError or CountsError where recipe, corpora and labels do not fit each other;
    ArtifactError where `out` was made otherwise or the disk is full; TrainingError where the loss is not
    finite.
    """
    options, out = options or RunOptions(), Path(out)
    refuse_output(out, KIND)
    check_corpora(model_config, corpus, eval_corpus, config)
    if corpus.tokenizer_fingerprint is None:
        note(f"{corpus.path} was written from ids: the checkpoint will have no tokenizer")
    from recallgap.pretrain.steps import Steps, training_arguments

    dataset = PackedContexts(corpus, config.context_len)
    steps = Steps(config, len(dataset))
    arguments = training_arguments(steps, options, out, staging_path(out) / SCRATCH)
    with arguments.main_process_first(local=False):
        if labels is None:
            labels = _shared_labels(corpus, eval_corpus, out, config, label_config)
    if labels.results["train_tokens"] != corpus.n_tokens:
        note(
            f"{labels.path} counts {labels.results['train_tokens']:,} training tokens, but {corpus.path} has "
            f"{corpus.n_tokens:,}: an AR hit is rare in another text than the one trained on"
        )
    watch = RecallWatch(eval_corpus, labels, context_len=config.context_len, eval_tokens=config.eval_tokens)
    plan = {
        "kind": KIND,
        "config": {"model": _recorded(model_config), **asdict(config), "max_train_count": watch.threshold},
        "inputs": {
            "corpus": corpus.fingerprint,
            "eval_corpus": eval_corpus.fingerprint,
            "labels": labels.fingerprint,
            "tokenizer": corpus.tokenizer_fingerprint,
        },
    }
    if not overwrite and up_to_date(out, **plan):
        return TrainedCheckpoint(open_artifact(out, KIND))
    with _staging(out, plan, overwrite, arguments) as staging:
        _train(staging, out, model_config, dataset, eval_corpus, watch, steps, options, arguments)
    return TrainedCheckpoint(open_artifact(out, KIND)) if arguments.process_index == 0 else None


@contextlib.contextmanager
def _staging(out, plan, overwrite, arguments):
    """The folder in the making; the first process alone opens and finishes it."""
    if arguments.process_index:
        _barrier(arguments)
        yield Staging(staging_path(out))
        return
    with stage(out, **plan, overwrite=overwrite) as staging:
        _barrier(arguments)
        yield staging


def _train(staging, out, model_config, dataset, eval_corpus, watch, steps, options, arguments):
    from transformers import set_seed

    from recallgap.models import RecallGapForCausalLM
    from recallgap.models.describe import describe_model
    from recallgap.pretrain.notes import Notes
    from recallgap.pretrain.record import run_record
    from recallgap.pretrain.trainer import Pretrainer, last_readable, quiet_training

    corpus, config, main = dataset.corpus, steps.config, arguments.process_index == 0
    last = last_readable(staging.scratch)
    first_step = int(Path(last).name.rpartition("-")[2]) if last else 0
    order = DataOrder(len(dataset), config.data_seed)
    seen = SeenCounts(watch, dataset, order) if config.seen_counts else None
    set_seed(config.seed)
    model = RecallGapForCausalLM(model_config)
    notes = None
    if main:
        tell_length(corpus, steps)
        described, shared = describe_model(model_config), tell_shared(corpus, eval_corpus)
        notes = Notes(staging.path / LOG, staging.scratch / SITTINGS, steps, first_step=first_step)
        n_parameters = described["parameters"]["total"]
        note(f"{n_parameters:,} parameters, {steps.n_steps:,} steps of {config.step_tokens:,} tokens")
        if first_step:
            note(f"continued after step {first_step:,}, from {last}")
    if "tensorboard" in options.loggers:  # by default it would write into the scratch folder
        os.environ.setdefault("TENSORBOARD_LOGGING_DIR", str(out.parent / "tensorboard" / out.name))
    trainer = Pretrainer(
        model, dataset, order, steps, options, arguments, watch=watch, seen=seen, notes=notes
    )
    with notes or contextlib.nullcontext(), quiet_training():
        trainer.train(resume_from_checkpoint=last)
        trainer.save_model(str(staging.scratch / "final"))
    if main:
        notes.keep(steps.n_steps)
        _write_folder(staging, staging.scratch / "final", corpus, config)
        staging.run = run_record(
            notes.sittings(), steps, options, arguments, model, described["flops_per_token"]
        )
        staging.results = {
            "n_parameters": n_parameters,
            "tokens": steps.tokens,
            "steps": steps.n_steps,
            "epochs": steps.epochs,
            "shared_documents": shared,
        }


def _write_folder(staging, made, corpus, config):
    """Take over the model's files and add the tokenizer's."""
    for path in sorted(made.iterdir()):
        if path.suffix in (".json", ".safetensors"):
            with staging.write(path.name) as half:
                shutil.move(path, half)
    if not (corpus.path / "tokenizer.json").is_file():
        return
    with staging.write("tokenizer.json") as half:
        shutil.copyfile(corpus.path / "tokenizer.json", half)
    tokenizer = corpus.tokenizer()
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": config.context_len,
        "clean_up_tokenization_spaces": False,
    }
    for role, token_id in (("bos", tokenizer.bos_id), ("eos", tokenizer.eos_id)):
        if token_id is not None:
            settings[f"{role}_token"] = tokenizer.backend.id_to_token(token_id)
    with staging.write("tokenizer_config.json") as half:
        half.write_text(json.dumps(settings, indent=2, sort_keys=True) + "\n")


def _recorded(model_config):
    """What decides the model: our own entries of its config, without those that transformers adds."""
    names = inspect.signature(type(model_config)).parameters
    return {name: getattr(model_config, name) for name in names if name != "kwargs"}


def _shared_labels(corpus, eval_corpus, out, config, label_config):
    label_config = label_config or LabelConfig(context_len=config.context_len)
    if label_config.context_len != config.context_len:
        raise ConfigError(
            f"labels of contexts of {label_config.context_len} tokens for a model of {config.context_len}: "
            "they must be equal"
        )
    origin = fingerprint_of([corpus.fingerprint, eval_corpus.fingerprint])
    folder = out.absolute().parent / f"recall-{origin[:12]}"
    return make_labels(corpus, eval_corpus, folder, config=label_config)


def _barrier(arguments):
    if arguments.world_size > 1:
        import torch.distributed

        torch.distributed.barrier()
