#!/usr/bin/env python3
"""Records what the command shows, for the pages: run it as root, and draw.py after it.

    python3 docs/pictures/record.py TENURE redis://127.0.0.1:6379/

TENURE is the command as it was built. The store must be empty and have a queue with `fair=true`. The script writes
recorded/bench.txt, the output of `tenure bench`, and recorded/ls-watch.txt, a screen of `tenure ls --watch --waiting`. The
processes in it run on this machine, with host names of their own.
"""

import os
import pty
import re
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
ENVIRONMENT = {"PATH": os.environ["PATH"], "TERM": "xterm", "COLUMNS": "110"}
# A host, its options of `tenure run`, and whether it gets the lock or waits.
PROCESSES = (
    ("web1", ["nightly", "--label", "backup.sh"], "holds"),
    ("web2", ["nightly", "--label", "backup.sh"], "waits"),
    ("web3", ["nightly", "--label", "restore test"], "waits"),
    ("web1", ["prices", "--label", "report", "--shared"], "holds"),
    ("web2", ["prices", "--label", "report", "--shared"], "holds"),
    ("web3", ["render", "--label", "film 7", "--permits", "4"], "holds"),
)


def main(tenure, url):
    bench = subprocess.run([tenure, "--store", url, "bench"], stdout=subprocess.PIPE, text=True, check=True).stdout
    (HERE / "recorded/bench.txt").write_text(f"$ tenure bench\n{bench}", encoding="utf-8")
    fair = [tenure, "--store", f"{url}?fair=true"]
    started = [start(fair, *process) for process in PROCESSES]
    try:
        screen = watched([*fair, "ls", "--watch", "--waiting"])
    finally:
        for process in started:
            process.terminate()
        for process in started:
            process.wait()
    (HERE / "recorded/ls-watch.txt").write_text(f"$ tenure ls --watch --waiting\n{screen}\n", encoding="utf-8")


def start(tenure, host, options, then):
    """Starts one that holds or waits, and returns once it does."""
    run = [*tenure, "run", *options, "--", "sh", "-c", "echo it holds; exec sleep 1000"]
    renamed = ["unshare", "--uts", "sh", "-c", 'hostname "$0" && exec "$@"', host, *run]
    process = subprocess.Popen(renamed, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    said = process.stdout if then == "holds" else process.stderr
    print(host, *options, said.readline(), end="")
    return process


def watched(command):
    """The first whole screen that this command draws at a terminal."""
    child, terminal = pty.fork()
    if child == 0:
        os.execve(command[0], command, ENVIRONMENT)
    drawn = b""
    # A screen is whole when the next one begins.
    while len(screens := re.split(rb"\x1b\[H\x1b\[2J", drawn)) < 3:
        drawn += os.read(terminal, 4096)
    os.kill(child, 15)
    os.waitpid(child, 0)
    return screens[1].decode().replace("\r\n", "\n").rstrip()


if __name__ == "__main__":
    main(*sys.argv[1:])
