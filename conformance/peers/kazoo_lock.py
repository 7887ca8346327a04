"""kazoo's Lock as a client of a fault run. Its token is its node's number; it is lost as soon as the connection is."""

import logging
import sys
from urllib.parse import parse_qs, urlsplit

from kazoo.client import KazooClient, KazooState
from kazoo.exceptions import KazooException, LockTimeout

held = {}


def answer(verb, name, lease="0", wait="0"):
    if verb == "release":
        held.pop(name).release()
        return "released"
    lock = client.Lock(f"/faults/{name}")
    try:
        if not lock.acquire(timeout=max(int(wait) / 1000, 0.1)):
            return "busy"
    except LockTimeout:
        return "busy"
    held[name] = lock
    return f"held {int(lock.node[-10:]) + 1}"


def tell_losses(state):
    if state != KazooState.CONNECTED:
        for name in list(held):
            say(f"lost {name} session_ended")


def say(line):
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


logging.disable()  # Faults are no news.
url = urlsplit(sys.argv[1])
session = parse_qs(url.query)["session_timeout"][0].removesuffix("s")
client = KazooClient(hosts=url.netloc, timeout=float(session))
client.add_listener(tell_losses)
client.start_async()
for request in sys.stdin:
    try:
        say(answer(*request.split()))
    except KazooException as error:
        say(f"error {error!r}")
    # A loss that was told before its lock was said to be held has to be told again.
    tell_losses(client.state)
client.stop()
