"""Both halves tied together: the labels of real text, on MQAR with its answers, find exactly its recall."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mqar_oracles import configs, oracle_hits

from recallgap.corpus.store import write_corpus
from recallgap.counts import count_ngrams
from recallgap.mqar import MqarConfig, generate
from recallgap.mqar.generate import with_answers
from recallgap.mqar.zoology_preset import generate_like_zoology
from recallgap.recall import LabelConfig, label, repeats

ZERO = 0
"""Zero fillers are told to the labels as the document separator: an n-gram that holds one never occurs."""


def batch(config, n=200, seed=0):
    return generate(config, n, np.random.default_rng(seed))


def distances(ids_BT, targets_BT):
    """Distance of the repeated bigram that ends at each token, (B, T); 0: none."""
    B, T = ids_BT.shape
    answered_BT = with_answers(ids_BT, targets_BT)
    found = repeats(answered_BT.ravel(), np.arange(0, B * T + 1, T), separator_id=ZERO)
    return found.distance_T.reshape(B, T)


def after_queries(targets_BT):
    answer_BT = np.zeros(targets_BT.shape, bool)
    answer_BT[:, 1:] = targets_BT[:, :-1] >= 0
    return answer_BT


@settings(max_examples=200)
@given(configs(), st.integers(0, 1000))
def test_hits_are_what_the_oracle_says_for_every_config(config, seed):
    """At every answer with its distance, at the later tokens of a queried key, and where one query follows
    another as their pairs did; nowhere else, whatever the fillers."""
    ids_BT, targets_BT = batch(config, 3, seed)
    answered_BT = with_answers(ids_BT, targets_BT)
    for answered, found in zip(answered_BT.tolist(), distances(ids_BT, targets_BT).tolist(), strict=True):
        assert {t: d for t, d in enumerate(found) if d} == oracle_hits(answered, config)


@pytest.mark.parametrize("fillers", ["zero", "random"])
@pytest.mark.parametrize("variant", [{}, {"n_overwritten": 2}, {"n_passes": 3}, {"distances": (16, 24, 40)}])
def test_hits_are_exactly_the_answers(fillers, variant):
    """Of keys of one token, unless a query straight after an answer repeats "value, next key"."""
    config = MqarConfig(fillers=fillers, **variant)
    ids_BT, targets_BT = batch(config)
    found_BT, answer_BT = distances(ids_BT, targets_BT), after_queries(targets_BT)
    next_query_BT = (targets_BT >= 0) & np.roll(answer_BT, 1, axis=1)
    assert np.array_equal((found_BT > 0) | next_query_BT, answer_BT | next_query_BT)
    for ids, targets, found in zip(ids_BT, targets_BT, found_BT, strict=True):
        latest = {int(ids[2 * m]): 2 * m for m in range(config.n_written)}
        for t in np.flatnonzero(targets >= 0):
            assert found[t + 1] == t - latest[int(ids[t])], (
                "back to the writing that counts, or to its answer"
            )
            latest[int(ids[t])] = t


def test_hits_of_long_keys_are_at_their_later_tokens_too():
    config = MqarConfig(key_len=3, context_len=80, fillers="random")
    ids_BT, targets_BT = batch(config)
    hit_BT, query_BT = distances(ids_BT, targets_BT) > 0, targets_BT >= 0
    assert hit_BT[:, 1:][query_BT[:, :-1]].all() and hit_BT[query_BT].all()
    assert hit_BT[:, :-1][query_BT[:, 1:]].all(), "the second token of the key"


def test_without_answers_there_is_nothing_to_find():
    ids_BT, _ = batch(MqarConfig(fillers="random"))
    assert not distances(ids_BT, np.full_like(ids_BT, -100)).any()


def test_the_public_path_labels_the_answers_as_ar_hits(tmp_path):
    """Corpus, counts and labels, as for real text: each sequence is a document and a context."""
    config = MqarConfig(fillers="random", context_len=128, n_pairs=8)
    ids_BT, targets_BT = batch(config, 100)
    answered_BT = with_answers(ids_BT, targets_BT)
    corpus = write_corpus(tmp_path / "corpus", answered_BT.tolist(), vocab_size=config.vocab_size)
    counts = count_ngrams(corpus, tmp_path / "counts", for_corpus=corpus)
    labels = label(corpus, counts, tmp_path / "labels", config=LabelConfig(context_len=128))
    hit_BT = labels.column("ar_hit").reshape(ids_BT.shape)
    answer_BT = after_queries(targets_BT)
    assert hit_BT[answer_BT].all()
    next_query_BT = (targets_BT >= 0) & np.roll(answer_BT, 1, axis=1)
    assert not hit_BT[~answer_BT & ~next_query_BT].any()
    assert np.array_equal(labels.column("distance").reshape(ids_BT.shape), distances(ids_BT, targets_BT))
    assert labels.results["n_ar_hits"] >= 800


def test_random_fillers_of_zoology_make_false_hits_and_ours_do_not():
    """A small vocabulary shows it in most sequences: fillers there are keys, and repeat each other."""
    config = MqarConfig(vocab_size=140, context_len=128, n_pairs=8, fillers="random")

    def false_hits(ids_BT, targets_BT):
        answer_BT = after_queries(targets_BT)
        next_query_BT = (targets_BT >= 0) & np.roll(answer_BT, 1, axis=1)
        return ((distances(ids_BT, targets_BT) > 0) & ~answer_BT & ~next_query_BT).any(axis=1).mean()

    def key_among_fillers(ids_BT, targets_BT):
        filler_BT = targets_BT < 0
        filler_BT[:, :16] = False
        rows = zip(ids_BT, filler_BT, strict=True)
        return np.mean([np.isin(ids[filler], ids[:16:2]).any() for ids, filler in rows])

    theirs, ours = generate_like_zoology(config, 200, seed=0, torch_seed=0), batch(config)
    assert key_among_fillers(*theirs) > 0.9 and key_among_fillers(*ours) == 0
    assert false_hits(*theirs) > 0.2 and false_hits(*ours) == 0
