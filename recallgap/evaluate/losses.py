"""The loss of every token of a batch.

Legend: B rows, T positions.
"""

import contextlib

import torch

from recallgap.evaluate.windows import padded


@torch.no_grad()
def token_losses(model, head, ids_BT, lengths_B):
    """Loss in nats of each token given those before it in its row, float32 (B, T).

    ids_BT: int64, rows padded on the right. lengths_B: how many ids of each row count. NaN where nothing is
    scored: at position 0 and in the padding. head: from `heads.choose_head(model)`. The model should be in
    evaluation mode (see `evaluation_mode`).
    """
    # no_grad and not inference_mode: a module may keep a tensor of this pass that training uses later.
    position_T = torch.arange(1, ids_BT.shape[1], device=ids_BT.device)
    scored_BT = position_T < lengths_B[:, None]
    loss_BT = torch.full(ids_BT.shape, torch.nan, dtype=torch.float32, device=ids_BT.device)
    loss_BT[:, 1:][scored_BT] = head.losses(model, ids_BT[:, :-1], ids_BT[:, 1:], scored_BT)
    return loss_BT


def row_losses(model, head, rows):
    """`token_losses` of rows of ids of any lengths: one float32 numpy array a row, as long as the row."""
    ids_BT, lengths_B = padded(rows)
    on_device = (torch.from_numpy(array).to(model.device) for array in (ids_BT, lengths_B))
    loss_BT = token_losses(model, head, *on_device).cpu().numpy()
    return [loss[:length] for loss, length in zip(loss_BT, lengths_B, strict=True)]


@contextlib.contextmanager
def evaluation_mode(model):
    """Dropout off; afterwards every submodule is in the mode it was in."""
    training = [module for module in model.modules() if module.training]
    model.eval()
    try:
        yield
    finally:
        for module in training:
            module.training = True
