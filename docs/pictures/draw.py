#!/usr/bin/env python3
"""Draws the pictures of the documentation.

    python3 docs/pictures/draw.py             # draws them anew, beside this file
    python3 docs/pictures/draw.py DIRECTORY   # draws them there, as the test does that compares them

It needs Python 3, and nothing else.
"""

import sys
from pathlib import Path

sys.dont_write_bytecode = True

from bars import charts
from canvas import Canvas


def overview():
    picture = Canvas(
        900,
        566,
        "Who talks to whom",
        "In each process many tasks want a lock. They stand in the process's own queue for that name, and one of them, the "
        "contender, asks the store through the backend. In the background the client renews what its tasks hold. Several "
        "processes ask the same store, which keeps the holder, the lease and the token of each name, and sends wake-ups "
        "back.",
    )
    picture.panel(24, 24, 616, 274, "process", "one client, many tasks")
    for y in (76, 122, 168):
        picture.box(44, y, 92, 36, "plain", "task")
        picture.arrow((136, y + 18), (196, y + 18))
    picture.box(196, 76, 132, 128, "plain", "queue", "one for each", "name")
    chain(picture, 118)
    picture.box(196, 230, 294, 48, "holds", "background", "renews what is held")
    picture.arrow((490, 254), (572, 254), (572, 162))
    for y in (318, 434):
        picture.panel(24, y, 616, 100, "another process")
        picture.box(44, y + 40, 92, 36, "plain", "tasks")
        picture.arrow((136, y + 58), (196, y + 58))
        picture.box(196, y + 36, 132, 44, "plain", "queue")
        chain(picture, y + 36)
    picture.text(686, 124, "requests", "middle", "faint")
    picture.text(686, 170, "wake-ups", "middle", "faint")
    picture.store(732, 84, 144, 436, "store", "of each name:", "holder, lease,", "token")
    return picture


def chain(picture, y):
    """From a queue to the store: requests go there, wake-ups come back."""
    picture.arrow((328, y + 22), (370, y + 22))
    picture.box(370, y, 112, 44, "waits", "contender")
    picture.arrow((482, y + 22), (524, y + 22))
    picture.box(524, y, 96, 44, "plain", "backend")
    picture.arrow((620, y + 14), (732, y + 14))
    picture.arrow((732, y + 32), (620, y + 32), dashed=True)


def life_of_a_hold():
    picture = Canvas(
        992,
        492,
        "The life of a hold",
        "A claim is asked for. When the store grants it, it is held; a grant that comes late is renewed before anybody has "
        "it. A claim that is given up is withdrawn. While a renewal stays without an answer the hold is in doubt: it is "
        "still held, and the store is asked again. A guard releases its hold, and the store confirms that. A hold is lost "
        "for ever when the store says that it is gone, or when its deadline or max_hold passes; a release that finds it "
        "gone is Err(Lost).",
    )
    picture.panel(310, 106, 290, 250, "is_held() is true")
    picture.pill(30, 150, 120, 52, "waits", "asked")
    picture.arrow((150, 176), (400, 176))
    picture.text(230, 166, "granted", "middle")
    picture.pill(400, 150, 110, 52, "holds", "held")

    picture.arrow((90, 150), (90, 50), (206, 50))
    picture.text(148, 40, "granted late", "middle")
    picture.pill(206, 24, 160, 52, "doubt", "late", "nobody has it yet")
    picture.arrow((366, 50), (480, 50), (480, 150))
    picture.text(424, 40, "renewed", "middle")

    picture.arrow((90, 202), (90, 416))
    picture.text(102, 304, "given up: dropped,")
    picture.text(102, 322, "timed out or failed")
    picture.pill(30, 416, 120, 52, "plain", "withdrawn")

    picture.arrow((432, 202), (432, 284))
    picture.text(422, 238, "a renewal is", "end")
    picture.text(422, 255, "unanswered", "end")
    picture.arrow((478, 284), (478, 202))
    picture.text(488, 247, "renewed")
    picture.pill(370, 284, 170, 52, "doubt", "in doubt", "asked again soon")

    picture.arrow((455, 356), (455, 416))
    picture.text(467, 382, "the store says that it is gone, or")
    picture.text(467, 400, "the deadline or max_hold passes")
    picture.pill(310, 416, 524, 52, "lost", "lost", "final, with its cause")

    picture.arrow((510, 176), (676, 176))
    picture.text(638, 166, "release", "middle")
    picture.pill(676, 150, 120, 52, "plain", "releasing")
    picture.text(736, 136, "asked again until answered", "middle", "faint")
    picture.arrow((796, 176), (858, 176))
    picture.text(825, 166, "done", "middle")
    picture.pill(858, 150, 110, 52, "plain", "released")
    picture.arrow((736, 202), (736, 416))
    picture.text(748, 304, "it was gone:")
    picture.text(748, 322, "Err(Lost)")
    return picture


def lease_and_token():
    picture = Canvas(
        912,
        436,
        "A lease, a deadline and a fencing token",
        "Client A counts its hold from the instant at which it sent the request; the store counts the lease from when the "
        "request arrived. So A's deadline passes before the lease expires, by a margin for clocks that run at different "
        "rates. Then A's process is frozen. Its lease expires, and the store grants the name to B with the greater token 8. "
        "B writes with 8. A wakes and writes with 7, and the resource refuses it.",
    )
    for y, title, more in (
        (66, "client A", "by its own clock"),
        (180, "store", "by its own clock"),
        (288, "client B", ""),
        (380, "resource", "keeps the greatest token"),
    ):
        picture.text(24, y, title, "start", "strong")
        picture.text(24, y + 18, more, "start", "faint")

    picture.line((540, 82), (540, 148), dashed=True)
    picture.bar(200, 50, 540, 32, "holds", "counts as held, token 7")
    picture.text(200, 40, "sent", "middle", "faint")
    picture.text(540, 40, "deadline", "middle", "faint")
    picture.bar(380, 94, 812, 24, "doubt", "the process is frozen")

    picture.arrow((200, 82), (228, 166))
    picture.arrow((240, 166), (268, 82))
    picture.line((620, 132), (620, 166), dashed=True)
    picture.line((540, 140), (620, 140))
    picture.text(632, 145, "margin: 1 % + 2 ms", "start", "faint")
    picture.bar(228, 166, 620, 32, "holds", "A's lease, token 7")
    picture.text(612, 218, "expires", "middle", "faint")
    picture.bar(668, 166, 796, 32, "holds", "B's, token 8")

    picture.arrow((646, 268), (668, 198))
    picture.arrow((676, 198), (698, 268))
    picture.bar(420, 268, 646, 32, "waits", "waits")
    picture.bar(646, 268, 796, 32, "holds", "held, token 8")

    picture.arrow((716, 300), (716, 360))
    picture.text(706, 335, "writes", "end", "faint")
    picture.box(656, 360, 120, 48, "holds", "8", "is accepted")
    picture.text(840, 66, "wakes", "middle", "faint")
    picture.arrow((840, 76), (840, 360))
    picture.text(830, 335, "writes", "end", "faint")
    picture.box(792, 360, 96, 48, "lost", "7", "is refused")
    return picture


def crates():
    picture = Canvas(
        900,
        458,
        "The crates",
        "An arrow leads from a crate to one that it depends on. A program and the command tenure-cli use the facade tenure, "
        "which opens stores by URL. It has a crate for each family of stores: tenure-redis, tenure-sql, tenure-zk and "
        "tenure-etcd. All of them depend on tenure-core. The suite, tenure-conformance, depends on tenure-core alone; the command runs it, and so "
        "do the tests of the facade and the stores, against servers of tenure-testbed, which is not published.",
    )
    picture.panel(24, 108, 566, 220)
    picture.box(60, 24, 200, 52, "plain", "your program", dashed=True)
    picture.box(350, 24, 200, 52, "plain", "tenure-cli", "the command")
    picture.arrow((160, 76), (160, 128))
    picture.arrow((450, 76), (450, 128))
    picture.box(44, 128, 526, 56, "plain", "tenure", "a URL opens a store")
    for x, crate, stores in (
        (44, "tenure-redis", "Redis, Redlock"),
        (180, "tenure-sql", "SQL databases"),
        (316, "tenure-zk", "ZooKeeper"),
        (452, "tenure-etcd", "etcd"),
    ):
        picture.arrow((x + 59, 184), (x + 59, 252))
        picture.box(x, 252, 118, 56, "plain", crate, stores)
        picture.arrow((x + 59, 308), (x + 59, 378))
    picture.arrow((171, 184), (171, 378))
    picture.box(44, 378, 526, 56, "plain", "tenure-core", "the contract's policy, and the memory store")

    picture.box(652, 128, 212, 56, "plain", "tenure-conformance", "the suite")
    picture.arrow((550, 50), (758, 50), (758, 128))
    picture.box(652, 252, 212, 56, "plain", "tenure-testbed", "servers to test against")
    picture.arrow((758, 252), (758, 184))
    for y in (156, 280):
        picture.arrow((590, y), (652, y), dashed=True)
        picture.text(621, y - 10, "tests", "middle", "faint")
    picture.arrow((864, 156), (882, 156), (882, 406), (570, 406))
    return picture


def redlock():
    picture = Canvas(
        988,
        426,
        "Redlock's two rounds",
        "Round one: the client asks five servers at once to set the key. Three of them, a majority, set it and issue the "
        "tokens 41, 57 and 44; one has another claim's key, one does not answer. The greatest token is 57. Round two: these "
        "three servers raise their counters to 57, because the claim's key still stands there. When a majority has raised it, "
        "the lock is held with token 57.",
    )
    rows = (66, 138, 210, 282, 354)
    tokens = (41, 57, 44)
    picture.text(284, 40, "round 1: set the key", "middle", "faint")
    picture.text(716, 40, "round 2: raise the counter", "middle", "faint")
    for y in rows[:4]:
        picture.arrow((120, 234), (206, y + 24))
    picture.arrow((120, 234), (206, rows[4] + 24), dashed=True)
    picture.box(24, 206, 96, 56, "waits", "client")
    for server, y, token in zip("abc", rows, tokens):
        picture.box(206, y, 156, 48, "holds", f"server {server}", f"yes, issues {token}")
        nearly = 162 + (y - rows[1]) / 6
        picture.arrow((362, y + 24), (432, nearly))
        picture.arrow((570, 162), (636, y + 24))
        picture.box(636, y, 160, 48, "holds", f"server {server}", f"raises {token} to 57" if token < 57 else "has 57")
        picture.arrow((796, y + 24), (863, nearly))
    picture.box(206, rows[3], 156, 48, "plain", "server d", "no: another's key")
    picture.box(206, rows[4], 156, 48, "plain", "server e", "no answer", dashed=True)
    picture.box(432, 130, 138, 64, "plain", "greatest: 57", "of a majority")
    picture.pill(862, 130, 102, 64, "holds", "held", "token 57")
    return picture


def choose():
    picture = Canvas(
        900,
        646,
        "Which store",
        "Tasks of one process share memory:, processes of one machine sqlite:PATH. Several machines use what already runs: "
        "PostgreSQL, MySQL or MariaDB with lease rows, or with row locks for few, short locks that change hands at once; "
        "ZooKeeper or etcd; one Redis or Valkey server; Redis with Sentinel or Cluster; or Redlock on three or five independent "
        "servers, if locks must go on when one is lost. If none of these runs, use the database that has the data.",
    )
    picture.text(44, 44, "Who shares the locks?", "start", "strong")
    rows = [
        (60, "tasks of one process", "", "memory:", ""),
        (124, "processes of one machine", "", "sqlite:PATH", ""),
        (238, "PostgreSQL, MySQL, MariaDB", "", "postgres://, mysql://, mariadb://", "lease rows, the default"),
        (302, "the same, for few, short locks", "that change hands at once", "…?strategy=row-lock", "one server that accepts writes"),
        (366, "ZooKeeper, etcd", "", "zookeeper://, etcd://", ""),
        (430, "Redis or Valkey, one server", "", "redis://", "set appendfsync always"),
        (494, "Redis with Sentinel or Cluster", "", "redis+sentinel://, redis+cluster://", "set replicas="),
        (558, "3 or 5 independent Redis,", "one of which may be lost", "redlock://", "not a safer single server"),
    ]
    picture.panel(24, 188, 852, 434, "Several machines: what do you run already?", "none of these: the database with your data")
    for y, who, more, url, note in rows:
        picture.box(44, y, 316, 48, "plain", who, *filter(None, [more]))
        picture.arrow((360, y + 24), (440, y + 24))
        picture.box(440, y, 416, 48, "holds", url, *filter(None, [note]))
    return picture


def zookeeper_queue():
    picture = Canvas(
        900,
        420,
        "ZooKeeper's queue",
        "Each claim has a sequential node below the lock's node, /tenure/orders. The first, number 7, holds the lock; each of "
        "the others watches the node directly before its own. When node 7 is deleted, only the claim of node 8 is told, and "
        "holds the lock. The others still watch the nodes before theirs. Tokens, the numbers of the transactions that created "
        "the nodes, follow the order of the queue.",
    )
    places = ((44, "07", 512), (268, "08", 530), (492, "09", 531), (716, "10", 577))
    for top, holder in ((24, 0), (226, 1)):
        picture.panel(24, top, 852, 170, "/tenure/orders", ("while 07 holds", "after 07 was deleted")[holder])
        for place, (x, number, token) in enumerate(places):
            state = "gone" if place < holder else "holds" if place == holder else "waits"
            kind = "plain" if state == "gone" else state
            picture.box(x, top + 52, 140, 92, kind, f"…-lock-…{number}", f"token {token}", state, dashed=state == "gone")
            if place > holder:
                picture.arrow((x, top + 98), (x - 84, top + 98))
                picture.text(x - 42, top + 88, "watches", "middle", "faint")
            elif place == holder and holder:
                picture.arrow((x - 84, top + 98), (x, top + 98), dashed=True)
                picture.text(x - 42, top + 88, "event", "middle", "faint")
    return picture


def recorded(name, title, text):
    """Draws what record.py has recorded."""
    lines = (Path(__file__).parent / f"recorded/{name}.txt").read_text(encoding="utf-8").splitlines()
    height = 20 * len(lines)
    picture = Canvas(900, height + 84, title, text)
    picture.panel(24, 24, 852, height + 36)
    picture.screen(44, 56, lines)
    return picture


def ls_watch():
    return recorded(
        "ls-watch",
        "A screen of tenure ls --watch --waiting",
        "A table of three names, drawn anew each second. nightly has one holder, and two waiters in places 1 and 2; prices "
        "has two readers; render has one of four permits. Each line shows the label, the process and its host, the fencing "
        "token, since when, and what is left of the lease.",
    )


def bench():
    return recorded(
        "bench",
        "The output of tenure bench",
        "A table of five workloads on one Redis server: the round trip, acquire and release, 64 tasks with 64 names, 16 "
        "tasks with one name, and a hand-off between two clients. Each has its rate, the median, the 90th and 99th "
        "percentile and the maximum of its times, and the median in round trips.",
    )


PICTURES = {
    "overview": overview,
    "choose": choose,
    "life-of-a-hold": life_of_a_hold,
    "lease-and-token": lease_and_token,
    "crates": crates,
    "redlock": redlock,
    "zookeeper-queue": zookeeper_queue,
    "ls-watch": ls_watch,
    "bench": bench,
    **charts(),
}


def main():
    directory = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent
    for name, draw in PICTURES.items():
        (directory / f"{name}.svg").write_bytes(draw().svg().encode())


if __name__ == "__main__":
    main()
