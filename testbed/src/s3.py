"""Moto with one bucket, at this port. Each object is also a file of this directory, and outlasts the process."""
import base64, datetime, hashlib, io, json, os, pathlib, sys, threading
from cheroot.wsgi import Server
from moto.s3.models import s3_backends
from moto.server import DomainDispatcherApplication, create_backend_app

BUCKET = "tenure"
moto, lock, files = DomainDispatcherApplication(create_backend_app), threading.Lock(), pathlib.Path("objects")
backend = s3_backends["123456789012"]["aws"]


def keep(name):
    key = backend.head_object(BUCKET, name)
    if key is None:
        return
    body = base64.b64encode(key.value).decode()
    file = files / hashlib.sha1(name.encode()).hexdigest()
    beside = file.with_suffix(".new")
    beside.write_text(json.dumps([name, key.last_modified.timestamp(), body]))
    os.replace(beside, file)


def app(environ, start_response):
    # One request at a time, because its conditional puts look first and write then. A slow client delays no other.
    length = int(environ.get("CONTENT_LENGTH") or 0)
    environ["wsgi.input"] = io.BytesIO(environ["wsgi.input"].read(length))
    # It refuses requests without credentials, and checks none.
    environ.setdefault("HTTP_AUTHORIZATION", "AWS4-HMAC-SHA256 Credential=x/20260101/us-east-1/s3/aws4_request")
    name = environ["PATH_INFO"].removeprefix(f"/{BUCKET}/")
    with lock:
        answer = list(moto(environ, start_response))
        if environ["REQUEST_METHOD"] == "PUT":
            keep(name)
        return answer


backend.create_bucket(BUCKET, "us-east-1")
files.mkdir(exist_ok=True)
for file in files.iterdir():
    if not file.suffix:
        name, date, body = json.loads(file.read_text())
        key = backend.put_object(BUCKET, name, base64.b64decode(body))
        key.last_modified = datetime.datetime.fromtimestamp(date, datetime.timezone.utc)
server = Server(("127.0.0.1", int(sys.argv[1])), app, numthreads=64)
server.safe_start()
