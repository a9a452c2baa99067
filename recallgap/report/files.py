"""The files that every report has: figures, the page as Markdown and HTML, tables for scripts."""

from recallgap.report.drawing import save
from recallgap.report.markup import markdown, page_html


def write_files(staging, figures, blocks, texts):
    """Write figures ({name: figure}) as PNG and SVG, the page of `blocks`, and `texts` ({file: text})."""
    svg_of = {}
    for name, figure in figures.items():
        for suffix in ("png", "svg"):
            with staging.write(f"{name}.{suffix}") as path:
                save(figure, path, suffix)
        svg_of[name] = (staging.path / f"{name}.svg").read_text()
    pages = {"report.md": markdown(blocks), "report.html": page_html(blocks, svg_of)}
    for name, content in {**pages, **texts}.items():
        with staging.write(name) as path:
            path.write_text(content)
