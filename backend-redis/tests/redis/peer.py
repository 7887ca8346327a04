"""A program with redis-py's Lock, told what to do one line at a time: acquire NAME SECONDS, release NAME, owned NAME."""

import sys

import redis

client = redis.Redis(unix_socket_path=sys.argv[1])
locks = {}
print("ready", redis.__version__, flush=True)
for line in sys.stdin:
    verb, name, *rest = line.split()
    try:
        if verb == "acquire":
            locks[name] = client.lock(name, timeout=float(rest[0]))
            answer = locks[name].acquire(blocking=False)
        elif verb == "release":
            locks[name].release()
            answer = "released"
        else:
            answer = locks[name].owned()
    except redis.exceptions.LockError as error:
        answer = type(error).__name__
    print(answer, flush=True)
