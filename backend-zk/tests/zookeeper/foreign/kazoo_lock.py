"""kazoo's Lock, ReadLock or WriteLock. Says what it has, and lets go when it is told to."""

import sys

from kazoo.client import KazooClient

address, path, how, kind = sys.argv[1:]
client = KazooClient(hosts=address)
client.start()
# The names of the nodes by which the others contend.
WRITERS = ["-lock-", "__WRIT__"]
if kind == "read":
    lock = client.ReadLock(path, "kazoo", extra_lock_patterns=WRITERS)
elif kind == "write":
    lock = client.WriteLock(path, "kazoo", extra_lock_patterns=WRITERS + ["__READ__"])
else:
    lock = client.Lock(path, "kazoo", extra_lock_patterns=["-lock-"])
if lock.acquire(blocking=how == "wait"):
    print("held", flush=True)
    sys.stdin.readline()
    lock.release()
    print("released", flush=True)
else:
    print("busy", flush=True)
client.stop()
