"""Parts of HTML pages that hold everything they show and refer to nothing outside."""

import base64
import html
import io
import pathlib
import string
import warnings
from importlib import resources

from cct_keras.atomic_file import atomic_file

# Twice the pixels of a CSS inch, for sharp letters on screens with small pixels.
DOTS_PER_INCH = 192
WIDE_INCHES = 7


def write_page(
    path: pathlib.Path,
    title: str,
    parts: list[str],
    *,
    style: str = "",
    script: str = "",
) -> None:
    """Writes a page, which appears complete or not at all.

    Args:
        path: The HTML file, in an existing folder.
        title: Heading.
        parts: HTML of the page below the heading; empty parts are left out.
        style: CSS beside that of all pages.
        script: JavaScript; none by default, and then the page allows none.
    """
    scripts = "script-src 'unsafe-inline'" if script else "script-src 'none'"
    template = resources.files("cct_keras.drawing").joinpath("page.html")
    page = string.Template(template.read_text("utf-8")).substitute(
        title=escape(title),
        scripts=scripts,
        style=style,
        parts="\n".join(part for part in parts if part),
        script=f"<script>\n{script}</script>\n" if script else "",
    )
    with atomic_file(pathlib.Path(path)) as temporary:
        # Names of files, and so names of classes, need not be Unicode.
        temporary.write_bytes(page.encode("utf-8", "backslashreplace"))


def section(heading: str, *parts: str) -> str:
    """A part of a page under a heading."""
    body = "\n".join(parts)
    return f"<section>\n<h2>{heading}</h2>\n{body}\n</section>"


def details(summary: str, body: str) -> str:
    """A part that opens when its summary is clicked."""
    return f"<details>\n<summary>{summary}</summary>\n{body}\n</details>"


def table(heads: tuple, rows: list[tuple], numbers: int) -> str:
    """A table whose last `numbers` columns are aligned to the right."""

    def line(tag, cells):
        classes = [""] * (len(cells) - numbers) + [' class="number"'] * numbers
        return "".join(
            f"<{tag}{kind}>{escape(cell)}</{tag}>"
            for kind, cell in zip(classes, cells, strict=True)
        )

    body = "\n".join(f"<tr>{line('td', row)}</tr>" for row in rows)
    return (
        f"<table>\n<thead><tr>{line('th', heads)}</tr></thead>\n"
        f"<tbody>\n{body}\n</tbody>\n</table>"
    )


def figure_element(figure, kind: str, text: str) -> str:
    """A figure of matplotlib as an `img` element that holds its own data.

    Args:
        figure: The figure.
        kind: `"svg"` or `"png"`.
        text: What it shows, for those who do not see it.
    """
    inches = figure.get_figwidth()
    wide = ' class="wide"' if inches > WIDE_INCHES else ""
    media = "image/svg+xml" if kind == "svg" else "image/png"
    return (
        f'<figure><img{wide} alt="{escape(text)}" style="width:{inches:.2f}in" '
        f'src="{data_address(figure_bytes(figure, kind), media)}"></figure>'
    )


def figure_bytes(figure, kind: str) -> bytes:
    """A figure of matplotlib as the content of a file.

    Args:
        figure: The figure.
        kind: `"svg"`, `"png"` or `"pdf"`.
    """
    import matplotlib

    file = io.BytesIO()
    # No date and no random ids, so that the same run has the same report.
    undated = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}
    style = {"svg.hashsalt": "cct_keras", "svg.fonttype": "path"}
    with warnings.catch_warnings(), matplotlib.rc_context(style):
        # Letters that the font of the figures lacks are readable in the tables.
        warnings.filterwarnings("ignore", "Glyph .* missing from", UserWarning)
        figure.savefig(
            file,
            format=kind,
            dpi=DOTS_PER_INCH,
            facecolor="white",
            metadata=undated.get(kind),
        )
    return file.getvalue()


def data_address(content: bytes, media: str) -> str:
    """An address that holds its own content, such as `data:image/png;base64,...`."""
    return f"data:{media};base64,{base64.b64encode(content).decode()}"


def escape(text) -> str:
    """Text as HTML."""
    return html.escape(str(text))


def facts_section(facts: dict[str, str]) -> str:
    """A section with a table of facts by their names; empty if there are none.

    Example:

    >>> facts_section({})
    ''
    """
    rows = "\n".join(
        f'<tr><th scope="row">{escape(key)}</th><td>{escape(value)}</td></tr>'
        for key, value in facts.items()
    )
    return rows and section("Facts", f'<table class="facts">\n{rows}\n</table>')


def notes_section(notes: list[str]) -> str:
    """A section with a list of notes; empty if there are none.

    Example:

    >>> notes_section([])
    ''
    """
    rows = "\n".join(f"<li>{escape(note)}</li>" for note in notes)
    return rows and section("Notes", f"<ul>\n{rows}\n</ul>")
