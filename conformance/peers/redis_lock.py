"""redis-py's Lock as a client of a fault run. Its guard has no token, and no deadline unless an argument asks for it."""

import sys
import time
from threading import Timer

from redis import Redis, RedisError
from redis.backoff import NoBackoff
from redis.exceptions import LockError
from redis.lock import Lock
from redis.retry import Retry

OPTIONS = {"socket_timeout": 1, "socket_connect_timeout": 1, "retry": Retry(NoBackoff(), 0)}
client = Redis.from_url(sys.argv[1].split("?")[0], **OPTIONS)
held = {}


class TimedLock(Lock):
    def do_acquire(self, token):
        self.asked = time.clock_gettime(time.CLOCK_BOOTTIME)
        return super().do_acquire(token)


def answer(verb, name, lease="0", wait="0"):
    if verb == "acquire":
        lock = TimedLock(client, name, timeout=int(lease) / 1000, sleep=0.02)
        if not lock.acquire(blocking_timeout=int(wait) / 1000):
            return "busy"
        left = lock.asked + lock.timeout * 0.99 - time.clock_gettime(time.CLOCK_BOOTTIME)
        held[name] = lock, Timer(left, say, [f"lost {name} expired"])
        if sys.argv[2:] != ["deadline"]:
            return "held"
        held[name][1].start()
        return f"held - {int((lock.asked + lock.timeout * 0.99) * 1000)}"
    lock, timer = held.pop(name)
    timer.cancel()
    try:
        lock.release()
    except LockError:
        return "lost"
    return "released"


def say(line):
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


for request in sys.stdin:
    try:
        say(answer(*request.split()))
    except RedisError as error:
        say(f"error {error!r}")
