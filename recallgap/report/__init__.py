"""Gap -> tables, figures and a page for people.

text, tables       how numbers are written; tables for readers and for scripts
drawing, figures   style and helpers; FIGURES
markup, page       blocks as Markdown and HTML; what the page says
write              the report artifact
"""

from recallgap.report.tables import aligned, main_rows, main_table, slice_table
from recallgap.report.text import shown
from recallgap.report.write import write_report

__all__ = ["aligned", "main_rows", "main_table", "shown", "slice_table", "write_report"]
