"""A page as a list of blocks, and the two ways to write it: Markdown, and one self-contained HTML file.

Every text of a block is plain; names from outside (models, domains) may hold anything, so all are escaped.
"""

import html
import re
from dataclasses import dataclass

from recallgap.report.tables import Table

CSS = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 72em; margin: 2em auto; padding: 0 1em; color: #222; }
table { border-collapse: collapse; font-size: 14px; margin: 1em 0; display: block; overflow-x: auto; }
th, td { padding: .3em .7em; border-bottom: 1px solid #ccc; text-align: right; white-space: nowrap; }
th { border-bottom: 2px solid #888; vertical-align: bottom; white-space: normal; }
.left { text-align: left; white-space: normal; overflow-wrap: anywhere; min-width: 7em; }
figure { margin: 1.5em 0; }
figcaption { font-size: 14px; color: #444; }
svg { max-width: 100%; height: auto; }
"""


@dataclass(frozen=True)
class Heading:
    text: str
    level: int = 2


@dataclass(frozen=True)
class Paragraph:
    text: str


@dataclass(frozen=True)
class Bullets:
    items: list


@dataclass(frozen=True)
class Picture:
    name: str
    """Its files are NAME.png and NAME.svg beside the page."""
    caption: str


def markdown(blocks):
    """The blocks as Markdown (GitHub's tables)."""
    return "\n\n".join(_markdown_block(block) for block in blocks) + "\n"


def _markdown_block(block):
    match block:
        case Heading():
            return f"{'#' * block.level} {_markdown_text(block.text)}"
        case Paragraph():
            return _markdown_text(block.text)
        case Bullets():
            return "\n".join(f"- {_markdown_text(item)}" for item in block.items)
        case Picture():
            caption = _markdown_text(block.caption)
            return f"![{caption}]({block.name}.png)\n\n{caption}"
        case Table():
            rule = ["---"] * block.left + ["---:"] * (len(block.header) - block.left)
            lines = [[_markdown_text(cell) for cell in line] for line in (block.header, *block.rows)]
            return "\n".join(f"| {' | '.join(line)} |" for line in (lines[0], rule, *lines[1:]))


def _markdown_text(text):
    """Escapes what Markdown or the HTML in it would act on.

    >>> _markdown_text("a|b <i> x_1 *y* [z](w)")
    'a\\\\|b &lt;i&gt; x_1 \\\\*y\\\\* [z\\\\](w)'
    """
    escaped = re.sub(r"([\\`*|~$]|(?<!\w)_|_(?!\w)|\](?=[(\[:]))", r"\\\1", text)
    return html.escape(escaped, quote=False)


def page_html(blocks, svg_of):
    """The blocks as one HTML file without scripts or links. svg_of: {picture name: text of its SVG file}."""
    title = next(block.text for block in blocks if isinstance(block, Heading))
    body = "\n".join(_html_block(block, svg_of) for block in blocks)
    return (
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta name="viewport" content="width=device-width">\n<title>{html.escape(title)}</title>\n'
        f"<style>{CSS}</style>\n</head>\n<body>\n{body}\n</body>\n</html>\n"
    )


def _html_block(block, svg_of):
    match block:
        case Heading():
            return f"<h{block.level}>{html.escape(block.text)}</h{block.level}>"
        case Paragraph():
            return f"<p>{html.escape(block.text)}</p>"
        case Bullets():
            return "<ul>\n" + "\n".join(f"<li>{html.escape(item)}</li>" for item in block.items) + "\n</ul>"
        case Picture():
            svg = svg_of[block.name]
            drawing = svg[svg.index("<svg") :]  # without the XML declaration, which HTML does not take
            return f"<figure>\n{drawing}<figcaption>{html.escape(block.caption)}</figcaption>\n</figure>"
        case Table():
            rows = [_html_row("th", block.header, block.left)]
            rows += [_html_row("td", row, block.left) for row in block.rows]
            return "<table>\n" + "\n".join(rows) + "\n</table>"


def _html_row(tag, cells, left):
    opening = [f'<{tag} class="left">'] * left + [f"<{tag}>"] * (len(cells) - left)
    texts = [html.escape(cell).replace(" [", "<br>[") for cell in cells]  # an interval takes its own line
    row = [f"{start}{text}</{tag}>" for start, text in zip(opening, texts, strict=True)]
    return f"<tr>{''.join(row)}</tr>"
