#!/usr/bin/env python3
"""Reads benchmarks.json and fault-runs.jsonl, and prints their tables, which pages of docs show.

    python3 docs/pictures/results.py

The file has groups of results, one group for each workload. A group's `measure` says how to read it:

- `speed`: a ratio is tenure's speed divided by the speed of what it is compared with, and a target is the least it may
  be.
- `time`: a ratio is tenure's time divided by that of what it is compared with, and a target is the most it may be.
- `rate`: nothing is compared; `rate` is how many there were a second.

A pair of figures is the lowest and the highest median of several runs. `median` is the median of all these runs, where
it is known. `time` is tenure's own, `against_time` that of what it is compared with, both in `unit`. `recorded` is the
day on which the figure was first written down, on or soon after the day it was measured. A `peer` is another library, in
place of tenure and with the same store as the result above it.

fault-runs.jsonl has a line for each long fault run, added by `./test soak`. The table has the last one of each store.
"""

import json
import sys
from decimal import Decimal
from operator import ge, le
from pathlib import Path


def pictures():
    """For each picture its groups. Decimals keep their zeros: 1.00 was measured more precisely than 1.0."""
    text = (Path(__file__).parent / "benchmarks.json").read_text(encoding="utf-8")
    return json.loads(text, parse_float=Decimal)["pictures"]


def span(figures):
    return " to ".join(f"{figure:,}" for figure in figures)


def verdict(group, result):
    """Whether all medians reach the target: `met`, `missed at times`, `missed`; or nothing, without a target."""
    if "target" not in result:
        return None
    reaches = ge if group["measure"] == "speed" else le
    reached = [reaches(ratio, result["target"]) for ratio in result["ratio"]]
    return "met" if all(reached) else "missed at times" if any(reached) else "missed"


def target(group, result):
    bound = "at least" if group["measure"] == "speed" else "at most"
    return f"{bound} {result['target']}: {verdict(group, result)}" if "target" in result else ""


def figure(result):
    if "rate" in result:
        return f"**{span(result['rate'])}**"
    if "ratio" not in result:
        return ""
    return f"**{span(result['ratio'])}**" + (f", median {result['median']}" if "median" in result else "")


def time(result, key):
    return f"{span(result[key])} {result['unit']}" if key in result else ""


def rival(result):
    took = f"({time(result, 'against_time')})" if "against_time" in result else ""
    return " ".join(filter(None, [result.get("against", ""), took]))


def table(group):
    """Markdown. A column without figures is left out."""
    rows = [("store", group["unit"], group.get("time_of", "tenure's time"), "compared with", "target")]
    for result in group["results"]:
        name = f"*{result['store']}*" if result.get("peer") else result["store"]
        rows.append((name, figure(result), time(result, "time"), rival(result), target(group, result)))
    kept = [column for column in zip(*rows) if any(column[1:])]
    lines = [f"| {' | '.join(row)} |".replace("|  |", "| |").replace("|  |", "| |") for row in zip(*kept)]
    return "\n".join([lines[0], "|---" * len(kept) + "|", *lines[1:]])


def fault_runs():
    """Markdown, a row for each store."""
    text = (Path(__file__).parent / "fault-runs.jsonl").read_text(encoding="utf-8")
    last = {run["store"]: run for run in map(json.loads, text.splitlines())}
    columns = ["store", "build", "seed", "minutes", "operations", "grants", "losses", "faults", "violations"]
    columns += ["lost updates", "leaks"]
    lines = [f"| {' | '.join(columns)} |", "|---" * len(columns) + "|"]
    for store, run in sorted(last.items()):
        run["faults"] = sum(run["faults"].values())
        lines.append(f"| {' | '.join(str(run[column.replace(' ', '_')]) for column in columns)} |")
    return "\n".join(lines)


def main():
    sys.stdout.reconfigure(encoding="utf-8")
    groups = [group for picture in pictures().values() for group in picture]
    print("\n\n".join([*map(table, groups), fault_runs()]))


if __name__ == "__main__":
    main()
