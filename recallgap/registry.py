"""A registry is a dict; picking an unknown name from it teaches the known ones."""

import difflib

from recallgap.errors import ConfigError


def pick(kind, table, name):
    """The entry of `table` called `name`; ConfigError with the nearest and all known names otherwise.

    >>> pick("policy", {"packed": 1, "document": 2}, "document")
    2
    """
    if name in table:
        return table[name]
    near = difflib.get_close_matches(str(name), map(str, table), n=1)
    hint = f" Did you mean '{near[0]}'?" if near else ""
    raise ConfigError(f"unknown {kind} '{name}'.{hint} Known: {', '.join(sorted(map(str, table)))}")
