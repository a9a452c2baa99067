"""MQAR, multi-query associative recall: data, sweeps of models over it, and figures.

Source: Zoology (arXiv 2312.04927), section 3.2 and appendices E and F.
"""

from recallgap.mqar.config import MqarConfig
from recallgap.mqar.generate import generate

__all__ = ["MqarConfig", "generate"]
