"""Linear recurrences in chunks: within a chunk products of matrices, from chunk to chunk a state.

A rule says what a chunk does; `run` walks a sequence with it, forward and backward. Only inputs, outputs and
the states between chunks are stored; the backward pass computes each chunk again from its state. One chunk at
a time stays in the cache: on a CPU this is faster than all chunks at once under autograd. (On a GPU it means
a few dozen small kernels a chunk; nobody has measured that.)

    start(*inputs)                                       -> the state before the first token
    forward(state, *chunk)                               -> (output of the chunk, state after it)
    backward(state, end, dend, output, doutput, *chunk)  -> (dstate, gradient of each input)
        end, dend: the state after the chunk and its gradient

Log decays g enter as b_t = g_1 + .. + g_t. A state scaled at t scales what is read from t on and divides what
was written, so dL/db_t is known without a decay: <output_t, doutput_t> - <value_t, dvalue_t>, or, channel by
channel of the keys, query dquery - key dkey. dL/dg_t is their sum from t to the end of the chunk, plus
<end, dend> for all that follows. Nothing is divided by a decay, which may be 0.
Legend: B batch, T position, H heads, E head width.
"""

import functools

import torch

from recallgap.models.mixer import wide


def run(rule, chunk, *inputs):
    """Outputs of a rule along the second dimension of its inputs, `chunk` positions at a time, in float32."""
    return _Run.apply(rule, chunk, *map(wide, inputs))


def without_autocast(method):
    """Run a Function's forward or backward in its tensors' precision, though called under autocast."""

    @functools.wraps(method)
    def call(ctx, *args):
        device = next(x.device.type for x in args if torch.is_tensor(x))
        with torch.autocast(device, enabled=False):
            return method(ctx, *args)

    return call


class _Run(torch.autograd.Function):
    @staticmethod
    @without_autocast
    def forward(ctx, rule, chunk, *inputs):
        spans = [slice(t, t + chunk) for t in range(0, inputs[0].shape[1], chunk)]
        states, outputs = [rule.start(*inputs)], []
        for span in spans:
            output, state = rule.forward(states[-1], *(x[:, span] for x in inputs))
            outputs.append(output)
            states.append(state)
        y = torch.cat(outputs, dim=1)
        ctx.save_for_backward(y, *inputs, *states)
        ctx.rule, ctx.spans, ctx.n_inputs = rule, spans, len(inputs)
        return y

    @staticmethod
    @torch.autograd.function.once_differentiable
    @without_autocast
    def backward(ctx, dy):
        y, *saved = ctx.saved_tensors
        inputs, states = saved[: ctx.n_inputs], saved[ctx.n_inputs :]
        gradients = [torch.empty_like(x, memory_format=torch.contiguous_format) for x in inputs]
        dstate = torch.zeros_like(states[-1])
        for n, span in reversed(list(enumerate(ctx.spans))):
            parts = (x[:, span] for x in inputs)
            dstate, *dparts = ctx.rule.backward(
                states[n], states[n + 1], dstate, y[:, span], dy[:, span], *parts
            )
            for gradient, dpart in zip(gradients, dparts, strict=True):
                gradient[:, span] = dpart
        return None, None, *gradients


def heads_first(x_BTHE):
    """(B, H, T, E), contiguous: a batch of matrices."""
    return x_BTHE.transpose(1, 2).contiguous()


def decays(g):
    """exp(g_{s+1} + .. + g_t) where s <= t and 0 elsewhere, (..., T, T), for log decays g (..., T).

    Summed for each s apart: differences of sums from the start lose what is small beside what was large.
    """
    before = torch.ones(g.shape[-1], g.shape[-1], dtype=g.dtype, device=g.device).tril_(-1)
    return (g.unsqueeze(-1) * before).cumsum_(-2).exp_().tril_()


def sum_from(x, dim):
    """The sum from each position to the last."""
    return x.flip(dim).cumsum(dim).flip(dim)
