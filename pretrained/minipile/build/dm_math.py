"""Generate the dmmath domain with DeepMind's mathematics_dataset.

    WORK/generator/bin/python pretrained/minipile/build/dm_math.py WORK/dmmath.jsonl CHARACTERS SEED

Each document is a run of different questions and answers of one module, as in the Pile's DM Mathematics. The
mini-Pile has 16,000,000 characters of seed 7 (about 37 minutes). Two runs with one seed are alike, not equal:
the package orders objects by their places in memory, and a question that takes over five seconds is given up.
"""

import importlib
import json
import random
import signal
import sys

import numpy as np

SECONDS_A_QUESTION = 5
MAX_FAILURES = 5
MAX_QUESTION, MAX_ANSWER = 160, 30  # characters, as in the published data set
DOCUMENT_CHARACTERS = (2000, 4000, 8000)
MIN_DOCUMENT = 500
TRAIN_EASY, TRAIN_HARD = 0.0, 2 / 3  # part of each module's range of difficulty


class TooSlow(Exception):
    """A question took more than SECONDS_A_QUESTION."""


def give_up(*_):
    raise TooSlow


def restore_old_names():
    """The package was written for the sympy and numpy of 2019: give today's the names they had then."""
    package = importlib.import_module("sympy.solvers.diophantine")
    module = importlib.import_module("sympy.solvers.diophantine.diophantine")
    if not hasattr(package, "base_solution_linear"):
        package.base_solution_linear = module.base_solution_linear
    for old in (int, float, bool, object):
        if old.__name__ not in vars(np):
            setattr(np, old.__name__, old)


def training_modules():
    """{name: function that makes a problem}, sorted by name."""
    restore_old_names()
    modules = importlib.import_module("mathematics_dataset.modules.modules")

    def entropy_range(whole):
        length = whole[1] - whole[0]
        return whole[0] + length * TRAIN_EASY, whole[0] + length * TRAIN_HARD

    def flat(tree, prefix=""):
        for name, branch in tree.items():
            if isinstance(branch, dict):
                yield from flat(branch, f"{prefix}{name}__")
            else:
                yield prefix + name, branch

    return dict(sorted(flat(modules.train(entropy_range))))


def problem(module):
    """(question, answer) of a module; raises what the module raises, or TooSlow."""
    signal.setitimer(signal.ITIMER_REAL, SECONDS_A_QUESTION)
    try:
        made = module()
        return str(made.question), str(made.answer)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def document(module, characters):
    """(text, last error): different questions of a module until there are `characters`, or five failures
    (errors and repeated questions together). The error is None unless the fifth failure was one."""
    asked, text, failures = set(), "", 0
    while len(text) < characters and failures < MAX_FAILURES:
        try:
            question, answer = problem(module)
        except Exception as error:  # the modules raise many kinds with new libraries
            failures += 1
            if failures == MAX_FAILURES:
                return text, error
            continue
        if len(question) <= MAX_QUESTION and len(answer) <= MAX_ANSWER and question not in asked:
            asked.add(question)
            text += f"{question}\n{answer}\n"
        else:
            failures += question in asked
    return text, None


def main():
    out, target, seed = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002 - the package draws from the global generators
    modules = training_modules()
    signal.signal(signal.SIGALRM, give_up)
    size = count = 0
    with open(out, "w", encoding="utf-8") as stream:
        while size < target and modules:
            for name, module in list(modules.items()):
                text, error = document(module, random.choice(DOCUMENT_CHARACTERS))
                if error is not None:
                    print(f"{name}: left out from here on, {type(error).__name__}: {error}", file=sys.stderr)
                    del modules[name]
                if len(text) > MIN_DOCUMENT:
                    meta = {"pile_set_name": "DM Mathematics", "id": name}
                    stream.write(json.dumps({"text": text, "meta": meta}) + "\n")
                    size += len(text)
                    count += 1
                if size >= target:
                    break
    print(f"{count} documents, {size:,} characters, {len(modules)} modules")


if __name__ == "__main__":
    main()
