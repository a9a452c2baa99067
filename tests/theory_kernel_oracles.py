"""Correlations, shifts and distances read literally: slow twins of the kernel half of the theory."""


def oracle_correlation(u, v):
    """(u~ * v)[s] with u~[t] = u[-t], both steps as they are defined."""
    n = len(u)
    turned = [u[-t % n] for t in range(n)]
    return [sum(turned[i] * v[(s - i) % n] for i in range(n)) for s in range(n)]


def oracle_top(w, t):
    """The t shifts from 1 on with the largest w, of equal ones the smaller first."""
    return sorted(range(1, len(w)), key=lambda s: (-w[s], s))[:t]


def oracle_distances(keys, queries):
    """The distinct interaction distances i - j of all matches j < i."""
    n = len(keys)
    return sorted({i - j for i in range(n) for j in range(i) if keys[j] == queries[i]})


def oracle_equal_pairs(tokens, lag):
    """How many tokens equal the token `lag` places on, the end joined to the start."""
    return sum(tokens[i] == tokens[(i + lag) % len(tokens)] for i in range(len(tokens)))


def oracle_needed(contexts, distances, counted, shifts):
    """{context: number of distinct distances}, and for each t of `shifts` how many counted tokens stand at
    one of the t commonest distances of their context."""
    tables = {}
    for context, distance, counts in zip(contexts, distances, counted, strict=True):
        table = tables.setdefault(context, {})
        if counts:
            table[distance] = table.get(distance, 0) + 1
    covered = [sum(sum(sorted(table.values())[-t:]) for table in tables.values()) for t in shifts]
    return {context: len(table) for context, table in tables.items()}, covered


def oracle_read_at(keys, values, queries, lags):
    """For each i the values of all j whose key equals its query and lies one of the lags before it."""
    n = len(keys)
    return [
        [values[j] for j in range(n) if queries[i] == keys[j] and 3 * (i - j) + 2 in lags] for i in range(n)
    ]
