"""Language models of any mixer: one Hugging Face causal LM, one file a mixer."""

from transformers import AutoConfig, AutoModelForCausalLM

from recallgap.models.config import RecallGapConfig
from recallgap.models.lm import RecallGapForCausalLM

AutoConfig.register(RecallGapConfig.model_type, RecallGapConfig, exist_ok=True)
AutoModelForCausalLM.register(RecallGapConfig, RecallGapForCausalLM, exist_ok=True)

__all__ = ["RecallGapConfig", "RecallGapForCausalLM"]
