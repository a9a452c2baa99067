"""Slow, literal readings of the definitions; the tests compare the library with them."""

import collections
import html
import itertools
import math
import struct

# ---- slices: sums, intervals and definitions, read literally ----


def oracle_slice(family, token):
    """Name of the slice that holds a token, given as a dict of its label columns."""
    hit, distance, count = token["ar_hit"], token["distance"], token["train_count"]
    if family == "all":
        return "all"
    if family == "recall":
        return "ar_hit" if hit else "other"
    if family == "domain":
        return token["domain"]
    if family == "train_count":
        return oracle_train_count_bin(count)
    if family == "repeat_x_train_count":
        return ("repeated, " if distance > 0 else "not repeated, ") + oracle_train_count_bin(count)
    if not hit:
        return "not a hit"
    if family == "followers":
        return "unique" if token["followers"] == 1 else "ambiguous"
    assert family == "distance"
    low = 1
    while 2 * low <= distance:
        low *= 2
    return "1" if low == 1 else f"{low:,}-{2 * low - 1:,}"


def oracle_train_count_bin(count):
    """0, 1, 2-3, then half-decades; the k-th begins at the smallest n with n^2 >= 10^k."""
    borders = [0, 1, 2] + [math.isqrt(10**k - 1) + 1 for k in range(1, 20)]
    low = max(border for border in borders if border <= count)
    high = borders[borders.index(low) + 1] - 1
    return f"{low:,}" if low == high else f"{low:,}-{high:,}"


def oracle_document_sums(columns, losses, slice_of):
    """{(document, slice): [tokens, loss of each model]} of the tokens that every model scored."""
    sums = {}
    for t in range(len(columns["document"])):
        token = {name: values[t] for name, values in columns.items()}
        if all(loss_T[t] == loss_T[t] for loss_T in losses):
            cell = sums.setdefault((int(token["document"]), slice_of(token)), [0] + [0.0] * len(losses))
            cell[0] += 1
            for model, loss_T in enumerate(losses, 1):
                cell[model] += float(loss_T[t])
    return sums


def oracle_jackknife_error(sums, tokens):
    """Standard error of sum(sums) / sum(tokens), each document really deleted in turn."""
    held = [(s, n) for s, n in zip(sums, tokens, strict=True) if n > 0]
    without = []
    for deleted in range(len(held)):
        rest = held[:deleted] + held[deleted + 1 :]
        without.append(sum(s for s, _ in rest) / sum(n for _, n in rest))
    mean = sum(without) / len(without)
    return ((len(held) - 1) / len(held) * sum((x - mean) ** 2 for x in without)) ** 0.5


def oracle_share_is_possible(part, whole, share, t):
    """Fieller: does a t-test over documents leave it open that the sum of `part` is `share` of `whole`'s?"""
    rest = [p - share * w for p, w in zip(part, whole, strict=True)]
    mean = sum(rest) / len(rest)
    variance = sum((x - mean) ** 2 for x in rest) / (len(rest) - 1)
    return mean**2 <= t**2 * variance / len(rest)


def oracle_sign_flip_p(sums):
    """P-value of "no gap" over every choice of signs of the document sums."""
    reach = abs(sum(sums)) * (1 - 1e-12)
    choices = list(itertools.product((1, -1), repeat=len(sums)))
    reached = [abs(sum(s * x for s, x in zip(signs, sums, strict=True))) >= reach for signs in choices]
    return sum(reached) / len(choices)


def oracle_markdown_cells(line):
    """The plain texts of the cells of one line of a Markdown table: backslashes and entities taken back."""
    cells, text, characters = [], "", iter(line[1:])
    for character in characters:
        if character == "|":
            cells.append(html.unescape(text.strip()))
            text = ""
        else:
            text += next(characters) if character == "\\" else character
    return cells


# ---- corpus: the Megatron indexed format, read as published ----


def oracle_megatron_documents(prefix):
    """Every document of `prefix`.bin/.idx as a list of ids: the published layout, field by field."""
    with open(f"{prefix}.idx", "rb") as index:
        assert index.read(9) == b"MMIDIDX\x00\x00"
        assert struct.unpack("<Q", index.read(8)) == (1,)
        code = {1: "B", 2: "b", 3: "h", 4: "i", 5: "q", 8: "H"}[index.read(1)[0]]
        n_sequences, n_documents = struct.unpack("<QQ", index.read(16))
        lengths = struct.unpack(f"<{n_sequences}i", index.read(4 * n_sequences))
        pointers = struct.unpack(f"<{n_sequences}q", index.read(8 * n_sequences))
        borders = struct.unpack(f"<{n_documents}q", index.read(8 * n_documents))
        assert index.read() == b""
    with open(f"{prefix}.bin", "rb") as data:
        raw = data.read()
    assert len(raw) == sum(lengths) * struct.calcsize(code)
    sequences = [struct.unpack_from(f"<{n}{code}", raw, p) for n, p in zip(lengths, pointers, strict=True)]
    return [[i for s in sequences[a:b] for i in s] for a, b in itertools.pairwise(borders)]


# ---- evaluate: one loss a position, each from its own forward, in float64 ----


def oracle_losses(model, ids, bounds, prefix=()):
    """Loss of every id given those before it in its window (and the prefix); None where there are none.

    model: a transformers model in float64 and evaluation mode.
    """
    import torch

    losses = []
    for start, stop in itertools.pairwise(bounds):
        for t in range(start, stop):
            before = [*prefix, *ids[start:t]]
            if not before:
                losses.append(None)
                continue
            with torch.no_grad():
                logits = model(input_ids=torch.tensor([before]), use_cache=False).logits[0, -1].tolist()
            peak = max(logits)
            log_sum = peak + math.log(sum(math.exp(logit - peak) for logit in logits))
            losses.append(log_sum - logits[ids[t]])
    return losses


# ---- counts and recall: n-grams compared one with another, as the definitions say ----


def oracle_train_counts(documents, order, across_documents):
    """Counter of the n-grams of training documents (lists of ids), within each or across all of them."""
    streams = [[i for document in documents for i in document]] if across_documents else documents
    return collections.Counter(
        tuple(stream[t : t + order]) for stream in streams for t in range(len(stream) - order + 1)
    )


def oracle_repeats(ids, bounds, order, separator_id, separators):
    """[(distance, first distance, followers)] of each token of the stream."""
    labels = []
    for start, stop in itertools.pairwise(bounds):
        for t in range(start, stop):
            ends = range(start + order - 1, t)
            if separators == "drop":
                ends = [s for s in ends if separator_id not in ids[s - order + 1 : s + 1]]
            inside = t >= start + order - 1
            same = [s for s in ends if inside and ids[s - order + 1 : s + 1] == ids[t - order + 1 : t + 1]]
            after = {ids[s] for s in ends if inside and ids[s - order + 1 : s] == ids[t - order + 1 : t]}
            labels.append((t - same[-1] if same else 0, t - same[0] if same else 0, len(after)))
    return labels


def oracle_label_rows(documents, policy, context_len, order, train_counts, max_train_count, separator_id):
    """The token table of an evaluation corpus, row by row; documents are (ids, domain) pairs."""
    ids = [i for document, _ in documents for i in document]
    owner = [number for number, (document, _) in enumerate(documents) for _ in document]
    if policy == "packed":
        starts = list(range(0, len(ids), context_len))
    else:
        firsts = [sum(len(d) for d, _ in documents[:n]) for n in range(len(documents))]
        starts = [
            first + offset
            for first, (document, _) in zip(firsts, documents, strict=True)
            for offset in range(0, len(document), context_len)
        ]
    repeats = oracle_repeats(ids, [*starts, len(ids)], order, separator_id, "drop")
    rows = []
    for t, (distance, first_distance, followers) in enumerate(repeats):
        context = sum(start <= t for start in starts) - 1
        position = t - starts[context]
        n_gram = tuple(ids[t - order + 1 : t + 1])
        count = train_counts[n_gram] if position >= order - 1 else 0
        rows.append(
            {
                "document": owner[t],
                "context": context,
                "position": position,
                "token": ids[t],
                "domain": documents[owner[t]][1],
                "distance": distance,
                "first_distance": first_distance,
                "followers": followers,
                "train_count": count,
                "ar_hit": distance > 0 and count <= max_train_count,
            }
        )
    return rows
