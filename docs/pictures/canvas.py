"""The shapes and colours that all pictures share, as SVG.

A kind says what a shape stands for, and so which colour it has: `plain` things, somebody who `waits`, somebody who
`holds`, what is in `doubt`, what is `lost`; bars.py says what it stands for in bars. Words always say the same, because
not everybody sees the colours.
"""

from xml.sax.saxutils import escape

# Each colour in light and in dark. They are those of GitHub's own pages, where most readers see the pictures.
COLOURS = {
    "ground": ("#ffffff", "#0d1117"),
    "panel": ("#f6f8fa", "#151b23"),
    "border": ("#d1d9e0", "#3d444d"),
    "ink": ("#1f2328", "#f0f6fc"),
    "faint": ("#59636e", "#9198a1"),
}

# For each kind the fill and the outline of its shapes.
KINDS = {
    "plain": (("#eaeef2", "#212830"), ("#818b98", "#656c76")),
    "waits": (("#ddf4ff", "#12243d"), ("#0969da", "#4493f8")),
    "holds": (("#dafbe1", "#12301d"), ("#1a7f37", "#3fb950")),
    "doubt": (("#fff8c5", "#332a12"), ("#9a6700", "#d29922")),
    "lost": (("#ffebe9", "#3a1a1d"), ("#d1242f", "#f85149")),
}

FONT = "system-ui, -apple-system, 'Segoe UI', Helvetica, Arial, sans-serif"

FIXED = "ui-monospace, 'SF Mono', Menlo, Consolas, 'DejaVu Sans Mono', monospace"


def style():
    """The rules for light, and those that replace them in dark."""
    return f"{rules(0)}\n@media (prefers-color-scheme: dark) {{\n{rules(1)}\n}}"


def rules(shade):
    colour = {name: shades[shade] for name, shades in COLOURS.items()}
    lines = [
        f".ground {{ fill: {colour['ground']}; }}",
        f".panel {{ fill: {colour['panel']}; stroke: {colour['border']}; }}",
        f"text {{ fill: {colour['ink']}; }}",
        f".faint {{ fill: {colour['faint']}; }}",
        f".line {{ fill: none; stroke: {colour['faint']}; stroke-width: 1.5; }}",
        f".head {{ fill: {colour['faint']}; }}",
    ]
    for kind, (fill, outline) in KINDS.items():
        lines.append(f".{kind} {{ fill: {fill[shade]}; stroke: {outline[shade]}; stroke-width: 1.5; }}")
    return "\n".join(lines)


class Canvas:
    """One picture. Coordinates are pixels from the upper left corner; what is drawn later covers what was drawn before."""

    def __init__(self, width, height, title, description):
        self.size = (width, height)
        self.about = (title, description)
        self.shapes = []

    def panel(self, x, y, width, height, title="", more=""):
        """The ground of things that belong together, with words in its upper corners."""
        self.shapes.append(rectangle(x, y, width, height, 10, "panel"))
        if title:
            self.text(x + 16, y + 26, title, "start", "strong")
        if more:
            self.text(x + width - 16, y + 26, more, "end", "faint")

    def box(self, x, y, width, height, kind, title, *more, dashed=False):
        """A thing: a program, a part of one, a node. The title is bold, the lines below it are small."""
        self.shapes.append(rectangle(x, y, width, height, 8, kind, dashed))
        self.words(x + width / 2, y + height / 2, title, more)

    def pill(self, x, y, width, height, kind, title, *more):
        """A state."""
        self.shapes.append(rectangle(x, y, width, height, height / 2, kind))
        self.words(x + width / 2, y + height / 2, title, more)

    def bar(self, x, y, until, height, kind, label):
        """A stretch of time."""
        self.shapes.append(rectangle(x, y, until - x, height, 4, kind))
        self.text((x + until) / 2, y + height / 2 + 5, label, "middle", "small")

    def length(self, x, y, until, height, kind, hollow=False):
        """A figure, to compare with others; hollow where it varies."""
        self.shapes.append(rectangle(x, y, until - x, height, 3, kind, hollow=hollow))

    def mark(self, x, y, height):
        """A place on a scale."""
        self.shapes.append(rectangle(x - 1.5, y, 3, height, 1, "head"))

    def store(self, x, y, width, height, title, *more):
        """What keeps things: a cylinder."""
        curve = 14
        left, right, top, bottom = number(x), number(x + width), number(y + curve), number(y + height - curve)
        arc = f"A {number(width / 2)} {curve} 0 0"
        self.shapes.append(
            f'<path class="plain" d="M {left} {top} {arc} 1 {right} {top} V {bottom} {arc} 1 {left} {bottom} Z"/>'
        )
        self.shapes.append(f'<path class="plain" d="M {left} {top} {arc} 0 {right} {top}" style="fill: none"/>')
        self.words(x + width / 2, y + height / 2 + curve / 2, title, more)

    def arrow(self, *points, dashed=False, head=True):
        """A line through these points, with a head at the last one."""
        path = " L ".join(f"{number(x)} {number(y)}" for x, y in points)
        dash = ' stroke-dasharray="5 4"' if dashed else ""
        marker = ' marker-end="url(#head)"' if head else ""
        self.shapes.append(f'<path class="line" d="M {path}"{dash}{marker}/>')

    def line(self, *points, dashed=False):
        self.arrow(*points, dashed=dashed, head=False)

    def words(self, x, y, title, more):
        """A title, and the lines below it, around a middle."""
        top = y + 5 - 9 * len(more)
        self.text(x, top, title, "middle", "strong")
        for below, line in enumerate(more, start=1):
            self.text(x, top + 18 * below, line, "middle", "faint")

    def text(self, x, y, words, anchor="start", look="small"):
        """One line; its look is `strong`, `small` or `faint`."""
        weight = ' font-size="15" font-weight="600"' if look == "strong" else ' font-size="13"'
        colour = ' class="faint"' if look == "faint" else ""
        self.shapes.append(
            f'<text x="{number(x)}" y="{number(y)}" text-anchor="{anchor}"{weight}{colour}>{escape(words)}</text>'
        )

    def screen(self, x, y, lines):
        """Lines of a terminal."""
        for place, line in enumerate(lines):
            self.shapes.append(
                f'<text x="{number(x)}" y="{number(y + 20 * place)}" xml:space="preserve" font-size="12"'
                f' font-family="{FIXED}">{escape(line)}</text>'
            )

    def svg(self):
        width, height = self.size
        title, description = map(escape, self.about)
        return "\n".join(
            [
                f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
                f' font-family="{FONT}" role="img" aria-labelledby="title description">',
                f'<title id="title">{title}</title>',
                f'<desc id="description">{description}</desc>',
                f"<style>\n{style()}\n</style>",
                '<marker id="head" viewBox="0 0 10 10" refX="10" refY="5" markerWidth="7" markerHeight="7" orient="auto">'
                '<path class="head" d="M 0 0 L 10 5 L 0 10 Z"/></marker>',
                rectangle(0, 0, width, height, 12, "ground"),
                *self.shapes,
                "</svg>",
                "",
            ]
        )


def rectangle(x, y, width, height, radius, look, dashed=False, hollow=False):
    dash = ' stroke-dasharray="5 4"' if dashed else ""
    fill = ' style="fill: none"' if hollow else ""
    x, y, width, height, radius = map(number, (x, y, width, height, radius))
    return f'<rect class="{look}" x="{x}" y="{y}" width="{width}" height="{height}" rx="{radius}"{dash}{fill}/>'


def number(value):
    """Without a useless `.0`."""
    return f"{value:g}"
