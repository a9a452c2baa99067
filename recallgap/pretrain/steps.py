"""The steps of a run, and the settings of transformers' Trainer that follow from them."""

import os

from recallgap.errors import ConfigError

LOG_LINES = 500
"""About how many training lines a run's log has."""


class Steps:
    """The steps of a run, which follow from its config and corpus."""

    def __init__(self, config, n_contexts):
        self.config, self.n_contexts = config, n_contexts
        tokens = config.tokens or n_contexts * config.context_len
        self.n_steps = max(tokens // config.step_tokens, 1)
        self.tokens = self.n_steps * config.step_tokens
        self.epochs = self.n_steps * config.batch_size / n_contexts
        self.log_every = max(self.n_steps // LOG_LINES, 1)
        self._evaluated = {
            round(i * self.n_steps / config.evaluations) for i in range(1, config.evaluations + 1)
        }

    def logs(self, step):
        return step % self.log_every == 0 or step == self.n_steps

    def evaluates(self, step):
        return step in self._evaluated


def training_arguments(steps, options, out, folder):
    """The Trainer's settings for a run that makes `out` and keeps what it needs to continue in `folder`.

    ConfigError where the batch cannot be split over the processes, or the device is not there.
    """
    import torch
    from transformers import TrainingArguments

    config = steps.config
    if options.device == "cuda" and not torch.cuda.is_available():
        raise ConfigError("device is 'cuda', but this torch finds no GPU; use --device cpu")
    use_cpu = options.device == "cpu" or not torch.cuda.is_available()
    world = int(os.environ.get("WORLD_SIZE", "1"))
    device_batch = min(options.device_batch_size, max(config.batch_size // world, 1))
    if config.batch_size % (device_batch * world):
        raise ConfigError(
            f"a step of {config.batch_size} contexts (batch_size) does not divide over {world} process(es) "
            f"in forwards of {device_batch} (--device-batch-size); choose numbers that do"
        )
    fsdp = {"version": 2, "transformer_layer_cls_to_wrap": ["Block"], "reshard_after_forward": True}
    return TrainingArguments(
        output_dir=str(folder),
        max_steps=steps.n_steps,
        per_device_train_batch_size=device_batch,
        gradient_accumulation_steps=config.batch_size // (device_batch * world),
        learning_rate=config.learning_rate,
        max_grad_norm=config.clip,
        bf16=config.precision == "bf16",
        torch_compile=options.compile,
        use_cpu=use_cpu,
        seed=config.seed,
        logging_strategy="no",
        save_strategy="no",
        eval_strategy="no",
        logging_nan_inf_filter=False,
        run_name=out.name,
        report_to=list(options.loggers) or "none",
        disable_tqdm=True,
        remove_unused_columns=False,
        dataloader_pin_memory=not use_cpu,
        fsdp=options.fsdp,
        fsdp_config=fsdp if options.fsdp else None,
    )
