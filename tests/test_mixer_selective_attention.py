"""Selective attention against its equation, each selection against its definition; cost, loss, refusals."""

import warnings

import pytest
import torch
from attention_cases import EXACT, assert_normal, assert_same, attention_by_rows
from hypothesis import given
from hypothesis import strategies as st
from mixer_cases import CASES, build_mixer, random_input, run, shaken
from test_models_contract import future_moves_past

from recallgap.errors import ConfigError
from recallgap.models.mixer import MixerContext
from recallgap.models.mixers import selective_attention
from recallgap.models.mixers.selective_attention import repeats

NAME = "selective_attention"


def build(selection, **options):
    place = {key: options.pop(key) for key in ("d_model", "context_len", "layer") if key in options}
    return shaken(build_mixer(NAME, {"n_heads": 2, "selection": selection, **options}, **place))


def top_k(k=4, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return build("learned", rule="top_k_sequence", k=k, **options)


def rows_times(mixer, x_BTD, f_BT):
    """Eq. 2, row by row."""
    return f_BT.unsqueeze(-1) * attention_by_rows(mixer.heads, x_BTD, lambda t: range(t + 1))


def score(mixer, x_BTD):
    return 1 / (1 + torch.exp(-(x_BTD @ mixer.score_D)))


# Eq. 2 with each selection


def test_full_selection_is_attention():
    mixer = build("full")
    whole = build_mixer("attention", {"n_heads": 2})
    whole.load_state_dict(mixer.state_dict())
    x_BTD, context = random_input()
    assert torch.equal(run(mixer, x_BTD, context), run(whole, x_BTD, context))


@pytest.mark.parametrize("rows_at_once", [3, 512])
@pytest.mark.parametrize("T", [1, 2, 11])
def test_programmatic_equals_its_equation_in_values_and_gradients(T, rows_at_once, monkeypatch):
    monkeypatch.setattr(selective_attention, "ROWS_AT_ONCE", rows_at_once)
    mixer = build("programmatic", n_kv_heads=1)
    x_BTD, context = random_input(B=3, T=T)
    x_BTD.requires_grad_()
    rows = context.ids_BT.tolist()
    f_BT = torch.tensor([[float(row[i] in row[:i]) for i in range(T)] for row in rows]).double()
    assert_same(mixer, x_BTD, lambda: run(mixer, x_BTD, context), lambda: rows_times(mixer, x_BTD, f_BT))


@given(st.lists(st.lists(st.integers(0, 4), min_size=7, max_size=7), min_size=1, max_size=4))
def test_repeats_are_tokens_that_occurred_before(rows):
    expected = [[row[i] in row[:i] for i in range(7)] for row in rows]
    assert repeats(torch.tensor(rows)).tolist() == expected


def test_the_next_token_does_not_select_a_row():
    """Row 2 may not learn from its selection that token 3 completes a repeated bigram."""
    mixer = build("programmatic")
    for next_token in range(5):
        ids_BT = torch.tensor([[1, 2, 3, next_token, 2, next_token]])
        f_BT = mixer.select(torch.zeros(1, 6, 16), MixerContext(ids_BT=ids_BT))
        assert f_BT[0, :3].tolist() == [0, 0, 0]
        assert f_BT[0, 4] == 1


@pytest.mark.parametrize("rows_at_once", [3, 512])
def test_learned_equals_its_equation_in_values_and_gradients(rows_at_once, monkeypatch):
    monkeypatch.setattr(selective_attention, "ROWS_AT_ONCE", rows_at_once)
    mixer = build("learned", k=4, noise=0.0)
    x_BTD, context = random_input(B=3, T=12)
    x_BTD.requires_grad_()

    def slow():
        s_BT = score(mixer, x_BTD)
        return rows_times(mixer, x_BTD, torch.where(s_BT > 0.5, s_BT, 0.0))

    n_B = (score(mixer, x_BTD) > 0.5).sum(1)
    assert len(set(n_B.tolist())) > 1, "rows that fill up the batch are not tested"
    assert_same(mixer, x_BTD, lambda: run(mixer, x_BTD, context), slow)


def test_top_k_sequence_equals_its_equation_in_values_and_gradients():
    mixer = top_k(k=4, noise=0.0)
    x_BTD, context = random_input(T=12)
    x_BTD.requires_grad_()

    def slow():
        s_BT = score(mixer, x_BTD)
        fourth_B1 = s_BT.sort(descending=True).values[:, 3:4]
        return rows_times(mixer, x_BTD, torch.where(s_BT >= fourth_B1, s_BT, 0.0))

    assert_same(mixer, x_BTD, lambda: run(mixer, x_BTD, context), slow)


def test_a_batch_without_a_selected_row_is_zero_with_gradients():
    mixer = build("programmatic")
    x_BTD, _ = random_input(T=5)
    y_BTD = mixer(x_BTD, MixerContext(ids_BT=torch.arange(5).expand(2, -1)))
    y_BTD.sum().backward()
    assert (y_BTD == 0).all()
    assert all((p.grad == 0).all() for p in mixer.parameters()), "DDP waits for a gradient of each"


# Random


def test_random_selection_draws_anew_in_training_and_repeats_in_evaluation():
    mixer = build("random", rate=0.25, context_len=4000)
    x_BTD, context = torch.zeros(8, 4000, 16), MixerContext(ids_BT=torch.zeros(8, 4000, dtype=torch.long))
    first, second = mixer.select(x_BTD, context), mixer.select(x_BTD, context)
    assert not torch.equal(first, second)
    assert not torch.equal(first[0], first[1])
    assert float(first.mean()) == pytest.approx(0.25, abs=5 * (0.25 * 0.75 / first.numel()) ** 0.5)
    mixer.eval()
    fixed = mixer.select(x_BTD, context)
    assert torch.equal(fixed, mixer.select(x_BTD, context))
    assert (fixed == fixed[0]).all()
    assert float(fixed[0].mean()) == pytest.approx(0.25, abs=5 * (0.25 * 0.75 / 4000) ** 0.5)
    for other in (
        build("random", rate=0.25, context_len=4000, seed=1),
        build("random", context_len=4000, layer=2),
    ):
        assert not torch.equal(fixed, other.eval().select(x_BTD, context))


def test_random_selection_follows_the_seed_of_torch():
    mixer = build("random", rate=0.5)
    x_BTD, context = random_input()
    assert torch.equal(run(mixer, x_BTD, context, seed=1), run(mixer, x_BTD, context, seed=1))
    assert not torch.equal(run(mixer, x_BTD, context, seed=1), run(mixer, x_BTD, context, seed=2))


# Learned


def test_the_loss_is_the_papers():
    mixer = build("learned", k=3, loss_weight=0.5)
    x_BTD, context = random_input(B=3, T=12)
    mixer(x_BTD, context)
    s_BT = score(mixer, x_BTD)
    expected = sum(max(0.0, float(s_T.sum()) - 3) / 12 for s_T in s_BT.detach()) / 3
    assert expected > 0
    assert [loss.item() for loss in context.auxiliary_losses] == pytest.approx([0.5 * expected])
    (gradient_D,) = torch.autograd.grad(context.auxiliary_losses[0], mixer.score_D)
    assert gradient_D.abs().sum() > 0


def test_the_loss_is_zero_within_the_budget_and_absent_where_nothing_is_learned():
    x_BTD, _ = random_input(B=3, T=12)
    for mixer, expected in (
        (build("learned", k=12), [0.0]),
        (build("programmatic"), []),
        (build("full"), []),
    ):
        context = MixerContext(ids_BT=torch.zeros(3, 12, dtype=torch.long))
        mixer(x_BTD, context)
        assert [loss.item() for loss in context.auxiliary_losses] == expected


def test_the_models_own_loss_reaches_the_score():
    mixer = build("learned", k=24)
    x_BTD, context = random_input()
    mixer(x_BTD, context).square().sum().backward()
    assert mixer.score_D.grad.abs().min() > 0


def test_rows_are_selected_with_probability_s_in_training_and_by_threshold_in_evaluation():
    mixer = build("learned", k=4)
    x_BTD, context = random_input()
    s_BT = score(mixer, x_BTD)
    draws = torch.stack([mixer.select(x_BTD, context) for _ in range(2000)])
    values = torch.unique(torch.where(draws == 0, s_BT, draws) - s_BT)
    assert values.abs().max() < EXACT, "f is 0 or s"
    share_BT = (draws != 0).double().mean(0)
    assert ((share_BT - s_BT).abs() < 5 * (s_BT * (1 - s_BT) / 2000).sqrt() + 1e-3).all()
    fixed = mixer.eval().select(x_BTD, context)
    torch.testing.assert_close(fixed, torch.where(s_BT > 0.5, s_BT, 0.0), atol=EXACT, rtol=EXACT)


def test_without_noise_training_selects_as_evaluation_does():
    mixer = build("learned", k=4, noise=0.0)
    x_BTD, context = random_input()
    assert torch.equal(mixer.select(x_BTD, context), mixer.eval().select(x_BTD, context))


def test_the_score_begins_as_the_authors_linear_layers_do():
    """zoology/model.py: N(0, 0.02) for every linear layer; the score has no bias there."""
    assert_normal(
        build_mixer(NAME, {"n_heads": 2, "selection": "learned", "k": 4}, d_model=1024).score_D, 0.02
    )
    assert not hasattr(build("full"), "score_D")


def test_autocast_does_not_move_a_row_over_the_threshold():
    mixer = build_mixer(NAME, {"n_heads": 2, "selection": "learned", "k": 4}).float().eval()
    x_BTD, context = random_input(B=1, T=2048)
    plain = mixer.select(x_BTD.float(), context)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(plain, mixer.select(x_BTD.float(), context))


# The paper's rule looks at the future


def test_top_k_of_the_sequence_leaks_and_is_not_under_the_contract():
    past, _ = future_moves_past(top_k(k=4).eval())
    assert past > 1e-3
    assert all(options.get("rule") != "top_k_sequence" for options in CASES[NAME])


def test_top_k_of_the_sequence_warns_once():
    selective_attention.warn_not_causal.cache_clear()
    options = {"n_heads": 2, "selection": "learned", "rule": "top_k_sequence", "k": 4}
    with pytest.warns(UserWarning, match="later tokens change earlier predictions") as caught:
        for _ in range(3):
            build_mixer(NAME, options)
    assert len(caught) == 1


def test_top_k_of_the_sequence_takes_every_row_of_a_shorter_one_and_cannot_step():
    mixer = top_k(k=4)
    x_BTD, context = random_input(T=3)
    assert (mixer.select(x_BTD, context) > 0).all()
    with pytest.raises(ConfigError, match="needs the whole sequence"):
        mixer.step(x_BTD[:, 0], mixer.start(2), context)


# Cost and padding


@pytest.mark.parametrize("selection", ["random", "programmatic", "learned"])
def test_only_selected_rows_are_computed(selection, monkeypatch):
    """The rows that are projected and compared are the largest number selected in the batch."""
    mixer = build(selection, rate=0.3, k=4).eval()
    x_BTD, context = random_input(B=3)
    expected = int((mixer.select(x_BTD, context) != 0).sum(1).max())
    assert 0 < expected < 24
    compared = []
    attend = mixer.heads.attend

    def spy(q_BHSE, *args, **kwargs):
        compared.append(q_BHSE.shape[2])
        return attend(q_BHSE, *args, **kwargs)

    monkeypatch.setattr(mixer.heads, "attend", spy)
    projected = []
    for linear in (mixer.heads.query, mixer.heads.out):
        linear.register_forward_hook(lambda _module, _args, y: projected.append(y.shape[1]))
    run(mixer, x_BTD, context)
    assert sum(compared) == expected
    assert projected == [expected, expected]


def test_flops_count_the_selected_share():
    learned, full = build("learned", k=6), build("full")
    assert learned.flops(24) == learned.flops(24, selected=0.25) < full.flops(24)
    assert build("random", rate=0.25).flops(24) == learned.flops(24)
    assert build("programmatic").flops(24) == full.flops(24) == learned.flops(24, selected=1.0)


@pytest.mark.parametrize("selection", ["random", "programmatic", "learned", "top_k_sequence"])
def test_padding_is_never_selected_nor_counted(selection):
    mixer = (top_k(k=2) if selection == "top_k_sequence" else build(selection, rate=0.5, k=2)).eval()
    x_BTD, context = random_input(B=2, T=12)
    real_BT = torch.arange(12) < torch.tensor([[12], [7]])
    padded = MixerContext(ids_BT=context.ids_BT, real_BT=real_BT)
    alone = MixerContext(ids_BT=context.ids_BT[1:, :7])
    assert (mixer.select(x_BTD, padded)[1, 7:] == 0).all()
    y_BTD, expected = mixer(x_BTD, padded), mixer(x_BTD[1:, :7], alone)
    torch.testing.assert_close(y_BTD[1:, :7], expected, atol=EXACT, rtol=EXACT)
    if alone.auxiliary_losses:
        both = MixerContext(ids_BT=context.ids_BT[:1])
        mixer(x_BTD[:1], both)
        mean = (both.auxiliary_losses[0] + alone.auxiliary_losses[0]) / 2
        torch.testing.assert_close(padded.auxiliary_losses[-1], mean)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"selection": "programatic"}, "unknown selection 'programatic'. Did you mean 'programmatic'?"),
        ({"selection": "learned", "rule": "top_k"}, "unknown rule .* Known: threshold, top_k_sequence"),
        ({"selection": "random", "rate": 0.0}, "rate is 0.0, but it must lie in"),
        ({"selection": "random", "rate": 1.5}, "rate is 1.5"),
        ({"selection": "learned", "k": 0}, "k is 0, but at least 1"),
        ({"selection": "learned", "k": 25}, "k is 25, but a context has 24 rows"),
        ({"selection": "learned", "k": 4, "noise": -1.0}, "noise is -1.0, below 0"),
        ({"selection": "learned", "k": 4, "loss_weight": -1.0}, "loss_weight is -1.0, below 0"),
    ],
)
def test_options_that_cannot_be_are_refused(options, text):
    with pytest.raises(ConfigError, match=text):
        build_mixer(NAME, {"n_heads": 2, **options})
