"""recallgap measures where one language model loses to another on real text."""

__version__ = "0.1.0"
