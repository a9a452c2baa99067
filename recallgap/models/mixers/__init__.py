"""Sequence mixers, one file each, to be read beside its paper. To add one: a file here and a line below."""

from recallgap.models.mixers.attention import Attention
from recallgap.models.mixers.autocorr_conv import AutocorrConv
from recallgap.models.mixers.base_conv import BaseConv
from recallgap.models.mixers.based import Based
from recallgap.models.mixers.block_attention import BlockAttention
from recallgap.models.mixers.delta_net import DeltaNet
from recallgap.models.mixers.gated_delta_net import GatedDeltaNet
from recallgap.models.mixers.gla import GLA
from recallgap.models.mixers.h3 import H3
from recallgap.models.mixers.hyena import Hyena
from recallgap.models.mixers.long_conv import LongConv
from recallgap.models.mixers.mamba2 import Mamba2
from recallgap.models.mixers.retnet import RetNet
from recallgap.models.mixers.rwkv import RWKV
from recallgap.models.mixers.rwkv7 import RWKV7
from recallgap.models.mixers.selective_attention import SelectiveAttention
from recallgap.models.mixers.sliding_attention import SlidingAttention

MIXERS = {
    "attention": Attention,
    "autocorr_conv": AutocorrConv,
    "base_conv": BaseConv,
    "based": Based,
    "block_attention": BlockAttention,
    "delta_net": DeltaNet,
    "gated_delta_net": GatedDeltaNet,
    "gla": GLA,
    "h3": H3,
    "hyena": Hyena,
    "long_conv": LongConv,
    "mamba2": Mamba2,
    "retnet": RetNet,
    "rwkv": RWKV,
    "rwkv7": RWKV7,
    "selective_attention": SelectiveAttention,
    "sliding_attention": SlidingAttention,
}
