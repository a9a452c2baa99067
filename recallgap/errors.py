"""Every error a user can cause. The command line prints its text and exits with 2; anything else is our bug.

RecallGapError
  ConfigError       an option or a combination of options that cannot be
  CorpusError       text or token data that cannot be read or does not fit
  CountsError       n-gram counts that do not cover what is asked of them
  CheckpointError   a model or tokenizer that cannot be loaded or does not fit the corpus
  TrainingError    a pretraining that cannot go on
  ArtifactError     a result folder that is missing, half-written, of another kind or from other inputs

A message says what was being done, what was found, what was expected and what to do next.
"""


class RecallGapError(Exception):
    """Base of all errors a user can cause."""


class ConfigError(RecallGapError):
    """An option, or a combination of options, that cannot be."""


class CorpusError(RecallGapError):
    """Text or token data that cannot be read or does not fit."""


class CountsError(RecallGapError):
    """N-gram counts that do not cover what is asked of them."""


class CheckpointError(RecallGapError):
    """A model or tokenizer that cannot be loaded or does not fit the corpus."""


class TrainingError(RecallGapError):
    """A pretraining that cannot go on."""


class ArtifactError(RecallGapError):
    """A result folder that is missing, half-written, of another kind or made from other inputs."""
