"""The theory's definitions read literally; the tests compare the library with them."""


def oracle_answers(keys, values, queries):
    """For each i the value of the latest earlier key that equals its query, else None; lists."""
    found = []
    for i in range(len(queries)):
        matches = [j for j in range(i) if keys[j] == queries[i]]
        found.append(values[matches[-1]] if matches else None)
    return found
