"""What decides the losses of a model on a corpus, and how the work is cut up."""

from dataclasses import dataclass

from recallgap.corpus.contexts import ContextPolicy
from recallgap.errors import ConfigError
from recallgap.registry import pick

DTYPES = {
    "float32": "exact to about 1e-6 nats",
    "bfloat16": "weights and hidden states rounded to 8 bits; about 1e-2 nats a token",
    "float16": "weights and hidden states rounded to 11 bits; overflows in some models",
}
PREFIXES = {
    "none": "the first token of a window is not predicted",
    "bos": "the beginning-of-sequence id stands before every window",
    "eos": "the end-of-sequence id stands before every window",
}
DEVICES = {"auto": "a GPU where there is one", "cpu": "the processor", "cuda": "a GPU"}


@dataclass(frozen=True, kw_only=True)
class EvaluateConfig:
    """How a model reads a corpus. Two results are comparable when all that `recorded` lists is equal."""

    policy: str = ContextPolicy.policy
    """How the stream is cut into contexts: one of corpus.contexts.POLICIES."""
    context_len: int = ContextPolicy.context_len
    """Tokens per context."""
    window: int | None = None
    """Cut each context further, so that the model sees at most this many tokens; None: whole contexts."""
    dtype: str = "float32"
    """Of weights and hidden states: one of DTYPES. Logits and softmax are always float32."""
    prefix: str = "none"
    """One of PREFIXES. With a prefix, the first token of every window is scored too."""
    batch_tokens: int = 4096
    """Tokens per forward, padding included. Moves results by float noise only, so it is not recorded."""
    device: str = "auto"
    """One of DEVICES."""
    shard_tokens: int = 1 << 18
    """Tokens per file: what an interrupted run loses at most."""

    def __post_init__(self):
        pick("dtype", DTYPES, self.dtype)
        pick("prefix", PREFIXES, self.prefix)
        pick("device", DEVICES, self.device)
        ContextPolicy(policy=self.policy, context_len=self.context_len)
        shortest = 2 if self.prefix == "none" else 1
        if self.window is not None and self.window < shortest:
            raise ConfigError(
                f"window is {self.window}, but with prefix '{self.prefix}' it must be >= {shortest}"
            )
        for name in ("batch_tokens", "shard_tokens"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} is {getattr(self, name)}, but must be at least 1")

    @property
    def context_policy(self):
        return ContextPolicy(policy=self.policy, context_len=self.context_len)

    def recorded(self):
        """The entries that decide the result, as the artifact keeps them."""
        names = ("policy", "context_len", "window", "dtype", "prefix", "shard_tokens")
        return {name: getattr(self, name) for name in names}
