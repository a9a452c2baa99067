"""The domains of the mini-Pile that are read from packages: what each is called, reads and keeps."""

from collections.abc import Callable
from dataclasses import dataclass

from .books import public_domain_books
from .prose import essays, licences, speeches
from .reference import dictionaries, encyclopedia, formal_mathematics
from .software import code, technical_documents


@dataclass(frozen=True)
class Domain:
    label: str
    """meta.pile_set_name of its documents."""
    licence: str
    """meta.licence of its documents."""
    read: Callable
    """From the folder of unpacked packages to (group, text) pairs."""
    max_bytes: float = float("inf")
    """About how much of it is kept, in whole groups."""
    max_copied: float | None = None
    """A document is dropped as a near-copy if more than this part of its 8-word shingles came before; None:
    the domain has none worth looking for."""


DOMAINS = {
    "books": Domain("Gutenberg-like", "public domain", public_domain_books),
    "essays": Domain("FAQ essays", "GPL-2", essays, max_copied=0.7),
    "code": Domain("Github (Python)", "BSD-3/Apache-2", code, 60e6, 0.6),
    "techdocs": Domain("Technical docs", "GPL-2 (Linux), PSF (Python)", technical_documents, 40e6, 0.7),
    "legal": Domain("Legal (licences)", "CC-BY-4.0 collection", licences, max_copied=0.4),
    "reference": Domain("Dictionaries", "GPL-2+ (GCIDE), GFDL-1.1+ (FOLDOC)", dictionaries, 25e6),
    "wiki": Domain("Wikipedia (en)", "CC-BY-SA/GFDL", encyclopedia),
    "formalmath": Domain("Metamath", "CC0", formal_mathematics, 16e6),
    "speeches": Domain("Parliament", "Open Parliament Licence / CC0", speeches),
}
