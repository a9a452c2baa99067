"""Progress on stderr: a bar on a terminal, a line now and then elsewhere."""

import os
import sys
import time

from tqdm import tqdm

SECONDS_BETWEEN_LINES = 20


class Progress:
    """Counts units of work towards `total` (None: unknown) and shows the rate.

    done: how many an earlier run finished. Use as a context manager; `advance(n)` after each piece of work.
    """

    def __init__(self, label, total=None, unit="tokens", done=0):
        self.label, self.total, self.unit = label, total, unit
        self.done, self.before, self.start = done, done, time.monotonic()
        self.last_line, self.shown = self.start, done
        self.bar = None
        if sys.stderr.isatty():
            self.bar = tqdm(
                desc=label, total=total, initial=done, unit=f" {unit}", unit_scale=True, file=sys.stderr
            )

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.bar is not None:
            self.bar.close()
        elif self.done > self.shown:
            self._line()

    def advance(self, n):
        self.done += n
        if self.bar is not None:
            self.bar.update(n)
        elif time.monotonic() - self.last_line > SECONDS_BETWEEN_LINES:
            self._line()

    def _line(self):
        self.last_line, self.shown = time.monotonic(), self.done
        of_total = f" of {self.total:,}" if self.total else ""
        print(f"{self.label}: {self.done:,}{of_total} {self.unit}, {self._rate()}", file=sys.stderr)

    def _rate(self):
        per_second = (self.done - self.before) / max(self.last_line - self.start, 1e-9)
        if per_second < 1:
            return f"{60 * per_second:.1f} {self.unit}/min"
        return f"{per_second:,.0f} {self.unit}/s"


def note(message):
    """One line for the reader, on stderr; of several processes the first speaks. Results go to stdout."""
    if os.environ.get("RANK", "0") == "0":
        print(message, file=sys.stderr)
