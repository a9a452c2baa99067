"""The constructions of Zoology's appendix H (arXiv 2312.04927), built, executed and measured.

Every module that checks a statement has a function `check...(rng, n_instances) -> [Finding]`; `verify` runs
them all on fresh random inputs (`recallgap theory verify`). docs/theory.md explains them, with every erratum.
"""
