"""What a run writes down while it goes.

training.jsonl, one JSON object a line, equal for equal runs (tokens: training tokens seen so far):
    {"event": "train", "step", "tokens", "loss", "grad_norm", "learning_rate"}
        loss: mean over the steps since the last such line, in nats; the norm before clipping
    {"event": "evaluation", "step", "tokens", "slices": {name: {"n", "loss_sum"}}}

sittings.jsonl: how long it took; a sitting is what one process did before it ended or was killed
    {"first_step", "step", "seconds", "evaluation_seconds"}
"""

import json
import os
import time

from recallgap.progress import Progress


class Notes:
    """Both files of a run that starts after `first_step`, and its progress on the screen."""

    def __init__(self, log_path, sittings_path, steps, *, first_step):
        """Lines of steps after `first_step`, which will be taken again, are dropped."""
        self.log_path, self.sittings_path, self.first_step = log_path, sittings_path, first_step
        self.step_tokens, self.step = steps.config.step_tokens, first_step
        self.started, self.evaluation_seconds = time.monotonic(), 0.0
        self.progress = Progress("pretrain", total=(steps.n_steps - first_step) * self.step_tokens)
        kept = [entry for entry in read_log(log_path) if entry["step"] <= first_step] if first_step else []
        half = log_path.with_name(f"{log_path.name}.half")
        half.write_text("".join(map(_line, kept)))
        os.rename(half, log_path)

    def __enter__(self):
        self.progress.__enter__()
        return self

    def __exit__(self, *error):
        self.progress.__exit__(*error)

    def train(self, step, loss, grad_norm, learning_rate):
        entry = {"loss": loss, "grad_norm": float(grad_norm), "learning_rate": learning_rate}
        self._log("train", step, entry)
        self.progress.advance((step - self.step) * self.step_tokens)
        self.step = step

    def evaluation(self, step, slices, seconds):
        self._log("evaluation", step, {"slices": slices})
        self.evaluation_seconds += seconds

    def _log(self, event, step, entry):
        with open(self.log_path, "a") as file:
            file.write(_line({"event": event, "step": step, "tokens": step * self.step_tokens, **entry}))

    def keep(self, step):
        """What was written is on the disk afterwards, and how long it took up to this step."""
        with open(self.log_path) as file:
            os.fsync(file.fileno())
        entry = {
            "first_step": self.first_step,
            "step": step,
            "seconds": round(time.monotonic() - self.started, 3),
            "evaluation_seconds": round(self.evaluation_seconds, 3),
        }
        with open(self.sittings_path, "a") as file:
            file.write(_line(entry))

    def sittings(self):
        """Each sitting as its last line says: steps that were lost with a kill do not count."""
        return list({entry["first_step"]: entry for entry in read_log(self.sittings_path)}.values())


def _line(entry):
    return json.dumps(entry, allow_nan=False) + "\n"


def read_log(path):
    """The entries of a file of JSON lines; a last line that was cut short is left out."""
    if not path.exists():
        return []
    lines = path.read_text().splitlines(keepends=True)
    return [json.loads(line) for line in lines if line.endswith("\n")]
