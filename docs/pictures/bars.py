"""Draws the results as bars: a panel for each workload, a bar for each store.

A bar is filled up to the lowest median, and goes on to the highest as an outline. Its kind says whether it reaches its
target: `holds` if always, `doubt` if only at times, `lost` if never; `plain` has no target. Words beside it say the
same. The bar of another library is an outline.
"""

from functools import partial

from canvas import Canvas
from results import pictures, span, verdict

TITLES = {
    "speed": "The speed of locks",
    "readers-and-permits": "The speed of readers and permits",
    "succession": "The speed of succession",
}
DIRECTIONS = {"speed": "longer is faster", "time": "shorter is faster", "rate": "longer is faster"}
KINDS = {"met": "holds", "missed at times": "doubt", "missed": "lost", None: "plain"}

WIDTH = 900
# Where names begin; where bars begin, and where the longest ends; where figures and targets begin.
NAMES, BARS, END, FIGURES, TARGETS = 40, 280, 566, 588, 676
ROW, BAR, GAP = 26, 16, 16


# The stores of the picture in README.
FRONT = ("SQLite", "Redis", "PostgreSQL lease row", "MariaDB lease row", "ZooKeeper")


def charts():
    """What draws each picture, by its name."""
    drawn = {name: partial(chart, TITLES[name], groups) for name, groups in pictures().items()}
    return {**drawn, "speed-of-five": partial(chart, TITLES["speed"], [front(pictures()["speed"][0])])}


def front(group):
    """The results of five stores, without their targets."""
    without_target = lambda result: {key: value for key, value in result.items() if key != "target"}
    return {**group, "results": [without_target(result) for result in group["results"] if result["store"] in FRONT]}


def chart(title, groups):
    top = first = 64 if any(map(has_targets, groups)) else 24
    bottom = first + sum(height(group) + GAP for group in groups)
    picture = Canvas(WIDTH, bottom + 24 - GAP, title, " ".join(map(told, groups)))
    if first == 64:
        key(picture)
    for group in groups:
        panel(picture, group, top)
        top += height(group) + GAP
    return picture


def compares(group):
    """Whether its bars are ratios; if not, no line says where 1.0 is."""
    return group["measure"] != "rate"


def has_targets(group):
    return any("target" in result for result in group["results"])


def drawn(group):
    """A result with nothing but a time is only in the table."""
    return [result for result in group["results"] if figures(result)]


def figures(result):
    return result.get("ratio") or result.get("rate")


def head(group):
    return 62 if compares(group) else 44


def height(group):
    return head(group) + ROW * len(drawn(group)) + 6


def panel(picture, group, top):
    results = drawn(group)
    longest = max(max(*figures(result), result.get("target", 1)) for result in results)
    scale = (END - BARS) / float(longest)
    unit = f"{group['unit']}: {DIRECTIONS[group['measure']]}"
    picture.panel(24, top, WIDTH - 48, height(group), group["workload"], unit)
    first = top + head(group)
    for place, result in enumerate(results):
        bar(picture, group, result, first + ROW * place, scale)
    if compares(group):
        picture.text(BARS + scale, first - 10, f"1.0: {group['one']}", "middle", "faint")
        picture.line((BARS + scale, first - 5), (BARS + scale, first + ROW * len(results) - 5), dashed=True)


def bar(picture, group, result, y, scale):
    reached = verdict(group, result)
    low, high = (BARS + float(figure(figures(result))) * scale for figure in (min, max))
    if result.get("peer"):
        picture.text(NAMES + 16, y + 13, plain(result["store"]), "start", "faint")
    else:
        picture.text(NAMES, y + 13, plain(result["store"]))
    picture.length(BARS, y, low, BAR, KINDS[reached], hollow=result.get("peer", False))
    if high > low:
        picture.length(low, y, high, BAR, KINDS[reached], hollow=True)
    picture.text(FIGURES, y + 13, span(figures(result)))
    if reached:
        picture.mark(BARS + float(result["target"]) * scale, y - 3, BAR + 6)
        picture.text(TARGETS, y + 13, f"target {result['target']}: {reached}", "start", "faint")
    elif compares(group) and not has_targets(group):
        picture.text(TARGETS, y + 13, f"{span(result['time'])} {result['unit']}", "start", "faint")


def key(picture):
    """What the shapes mean."""
    y = 30
    for x, kind, words in (
        (40, "holds", "target met"),
        (154, "doubt", "missed at times"),
        (298, "lost", "missed"),
        (386, "plain", "no target"),
        (490, "plain", "lowest to highest"),
    ):
        picture.length(x, y, x + 22, BAR, kind)
        picture.text(x + 30 + 16 * (x == 490), y + 13, words, "start", "faint")
    picture.length(512, y, 528, BAR, "plain", hollow=True)
    picture.length(664, y, 686, BAR, "plain", hollow=True)
    picture.text(694, y + 13, "another library", "start", "faint")
    picture.mark(810, y - 3, BAR + 6)
    picture.text(820, y + 13, "target", "start", "faint")


def told(group):
    """The same in words."""
    each = []
    for result in drawn(group):
        reached = verdict(group, result)
        aim = f" (target {result['target']}: {reached})" if reached else ""
        each.append(f"{plain(result['store'])} {span(figures(result))}{aim}")
    return f"{group['workload']}; {group['unit']} ({DIRECTIONS[group['measure']]}): {'; '.join(each)}."


def plain(words):
    """Without the marks of Markdown."""
    return words.replace("`", "")
