"""Books in the public domain: two commentaries of SWORD modules, Jane Austen's novels from an R package, and
the Gutenberg books of a test file."""

import re
import struct
import zlib

from cleaning import gathered, read, without_tags

STRING_VECTOR = 16  # R's type code STRSXP; the low byte of an item's flags


def public_domain_books(unpacked):
    """(group, text) of every book or biblical book."""
    for module, prefix, group in (("tdavid", "ot.c", ""), ("mhcc", "ot.b", "ot"), ("mhcc", "nt.b", "nt")):
        folder = unpacked / f"sword-comm-{module}/usr/share/sword/modules/comments/zcom" / module
        index, data = ((folder / f"{prefix}{ending}").read_bytes() for ending in ("zs", "zz"))
        for number, block in enumerate(zcom_blocks(index, data)):
            yield f"{module}:{group}{number}", osis_text(block)
    novels = unpacked / "r-cran-janeaustenr/usr/lib/R/site-library/janeaustenr/data/Rdata.rdb"
    for lines in r_string_vectors(novels.read_bytes()):
        yield f"austen:{lines[0]}", "\n".join(lines)
    collection = read(unpacked / "scancode-toolkit-mini/textcode/data/gibberish/big.txt")
    for number, text in enumerate(gathered(gutenberg_paragraphs(collection), 40_000)):
        yield f"bigtxt:{number // 4}", text  # four texts, 160,000 characters, are one group


def zcom_blocks(index, data):
    """The OSIS texts of a compressed SWORD commentary (zCom).

    The index is triples of little-endian uint32: a block's offset in the data, its length there as a zlib
    stream, and its length uncompressed. Empty blocks are left out.
    """
    for offset, length, _ in struct.iter_unpack("<3I", index):
        if length:
            yield zlib.decompress(data[offset : offset + length]).decode("utf-8", "replace")


def osis_text(osis):
    """The text of OSIS mark-up: chapters headed by their names ("Ps 23"), blank lines between paragraphs."""
    osis = re.sub(r'<div [^>]*type="(x-p|paragraph)"[^>]*/>', "\n", osis)
    osis = re.sub(r"</title>", "\n", osis)
    chapter = r'<chapter [^>]*osisID="([^"]+)"[^>]*sID[^>]*/>'
    osis = re.sub(chapter, lambda found: "\n\n" + found.group(1).replace(".", " ") + "\n", osis)
    text = re.sub(r"[ \t]+", " ", without_tags(osis))
    text = re.sub(r" ?\n ?", "\n", text)
    return re.sub(r"\n\n+", "\n\n", text)


def r_string_vectors(data):
    """The character vectors, as lists of strings, of an R lazy-load database (.rdb): a chain of four bytes of
    length and a zlib stream, each stream one object in R's XDR serialization (big-endian), version 3."""
    while data:
        stream = zlib.decompressobj()
        item = stream.decompress(data[4:])
        data = stream.unused_data
        yield r_strings(item)


def r_strings(item):
    """The strings of one serialized character vector; a missing one (NA) is an empty string."""
    # Header: "X\n", three ints (format version, writer's and oldest reader's R version), the native encoding.
    (encoding_length,) = struct.unpack_from(">i", item, 14)
    position = 18 + encoding_length
    flags, length = struct.unpack_from(">2i", item, position)
    if item[:2] != b"X\n" or flags & 255 != STRING_VECTOR:
        raise ValueError(f"expected a serialized character vector of R, found {item[:2]!r} and flags {flags}")
    position += 8
    strings = []
    for _ in range(length):
        _, size = struct.unpack_from(">2i", item, position)
        position += 8
        strings.append(item[position : position + max(size, 0)].decode("utf-8", "replace"))
        position += max(size, 0)
    return strings


def gutenberg_paragraphs(text):
    """The paragraphs, each with a blank line after it, that do not speak of Project Gutenberg or its terms:
    what is left is in the public domain and carries no trademark."""
    text = re.sub(r"(?s)\*END\*?\*?THE SMALL PRINT.*?\n", "", text)
    for paragraph in re.split(r"\n\s*\n", text):
        if not re.search(r"(?i)project gutenberg|etext|ebook|small print", paragraph):
            yield paragraph.strip("\n") + "\n\n"
