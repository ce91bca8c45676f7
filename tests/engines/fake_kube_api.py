"""An API server of a test over real HTTP: Jobs and pods with lists, watches, preconditions, faults and restarts.

It answers as the documents of Kubernetes say, and was never compared with a real server. The test is its controller:
it makes pods, and moves them.
"""

import copy
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar
from urllib.parse import parse_qs, urlparse

Object = dict[str, Any]
STARTED = 1795909739.0
KINDS = {"jobs": ("batch/v1", "Job"), "pods": ("v1", "Pod")}


class RefusalError(Exception):
    """A Status of the server."""

    def __init__(self, code: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.status = {"kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": message}


class FakeKube:
    """What the server stores, and how it misbehaves.

    Attributes:
        refusal: code, reason and message for each create from now on.
        forbidden: verbs of jobs and pods that the account has no right to, such as ``list pods``.
        fault: decides for each call by verb and path: "" answers; "cut" closes before anything is done, "lose" after it
            was done, "late" before it is done by ``arrive``, "busy" is 429, "broken" 500, "conflict" 409 of a quota,
            "slow" waits, "text" is no JSON.
        oldest: the oldest version of which a watch may begin, or a page go on.
        hidden: names of objects that lists leave out.
        repeated: by name, further lines of an object in lists.
    """

    namespaces: ClassVar = ("team", "other")

    def __init__(self) -> None:
        self.objects: dict[str, dict[str, Object]] = {"jobs": {}, "pods": {}}
        self.events: list[tuple[int, str, str, Object]] = []
        self.version, self.oldest, self.uids, self.page = 100, 0, 0, 10_000
        self.refusal: tuple[int, str, str] | None = None
        self.forbidden: set[str] = set()
        self.hidden: set[str] = set()
        self.repeated: dict[str, list[Object]] = {}
        self.fault: Callable[[str, str], str] = lambda verb, path: ""
        self.calls: list[str] = []
        self.delayed: list[tuple[str, Object]] = []
        self.created: list[str] = []
        self.changed = threading.Condition(threading.RLock())
        self.watching = 0

    # --- the store ----------------------------------------------------------------------------------------------

    def put(self, kind: str, item: Object, event: str = "MODIFIED") -> None:
        """Store a new version of an object, and tell watches."""
        with self.changed:
            self.version += 1
            item["metadata"]["resourceVersion"] = str(self.version)
            self.objects[kind][item["metadata"]["name"]] = item
            if event == "DELETED":
                del self.objects[kind][item["metadata"]["name"]]
            self.events.append((self.version, kind, event, copy.deepcopy(item)))
            self.changed.notify_all()

    def make(self, kind: str, item: Object) -> Object:
        """Store a new object with a uid."""
        self.uids += 1
        meta = item["metadata"]
        meta.update(uid=f"uid-{self.uids}", creationTimestamp=stamp(self.version))
        self.put(kind, item, "ADDED")
        return item

    def compact(self) -> None:
        """Forget all versions before the present one."""
        with self.changed:
            self.oldest, self.events = self.version, []

    # --- the controller, by the hand of the test ----------------------------------------------------------------

    def job(self, uid: str) -> Object:
        return next(job for job in self.objects["jobs"].values() if job["metadata"]["uid"] == uid)

    def pods_of(self, job: Object) -> list[Object]:
        uid = job["metadata"]["uid"]
        return [pod for pod in self.objects["pods"].values() if pod["metadata"]["ownerReferences"][0]["uid"] == uid]

    def settle(self, machines: int = 10_000) -> None:
        """Do once what controllers do: make the pods that Jobs lack, and drop Jobs without pods that are deleted."""
        for job in list(self.objects["jobs"].values()):
            pods = self.pods_of(job)
            over = any(one["type"] in ("Complete", "Failed") for one in job["status"].get("conditions", ()))
            alive = [pod for pod in pods if pod["status"]["phase"] not in ("Succeeded", "Failed")]
            if job["metadata"].get("deletionTimestamp") or job["spec"].get("suspend"):
                for pod in alive:
                    self.delete_pod(pod)
                if job["metadata"].get("deletionTimestamp") and not alive:
                    for pod in pods:
                        self.put("pods", pod, "DELETED")
                    self.put("jobs", job, "DELETED")
            elif any(pod["status"]["phase"] == "Succeeded" for pod in pods) and not over:
                job["status"]["conditions"] = [{"type": "Complete", "status": "True", "reason": "CompletionsReached"}]
                self.put("jobs", job)
            elif not alive and not over:
                name, uid = job["metadata"]["name"], job["metadata"]["uid"]
                owner = {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": uid, "controller": True}
                labels = job["spec"]["template"]["metadata"]["labels"]
                meta = {"name": f"{name}-0-{self.version}", "labels": dict(labels), "ownerReferences": [owner]}
                spec = copy.deepcopy(job["spec"]["template"]["spec"])
                self.make("pods", {"metadata": meta, "spec": spec, "status": {"phase": "Pending"}})

    def run_pod(self, pod: Object, machine: str) -> None:
        """Let a pod begin on a machine."""
        pod["spec"]["nodeName"] = machine
        pod["status"] = {"phase": "Running", "startTime": stamp(self.version)}
        self.put("pods", pod)

    def end_pod(self, pod: Object, code: int) -> None:
        """End a pod's processes; one that is being deleted goes."""
        pod["status"]["phase"] = "Succeeded" if code == 0 else "Failed"
        self.put("pods", pod, "DELETED" if pod["metadata"].get("deletionTimestamp") else "MODIFIED")

    def delete_pod(self, pod: Object) -> None:
        """Begin to delete a pod: it gets SIGTERM, and lives on until it has ended."""
        if not pod["metadata"].get("deletionTimestamp"):
            pod["metadata"]["deletionTimestamp"] = stamp(self.version)
            self.put("pods", pod)

    # --- calls --------------------------------------------------------------------------------------------------

    def answer(self, verb: str, path: str, query: Mapping[str, str], body: Object) -> Object:
        """Answer a call that is no watch."""
        if path == "/version/":
            return {"major": "1", "minor": "31", "gitVersion": "v1.31.2"}
        if path.endswith("/selfsubjectaccessreviews"):
            asked = body["spec"]["resourceAttributes"]
            return {"status": {"allowed": f"{asked['verb']} {asked['resource']}" not in self.forbidden}}
        namespace, kind, name = place(path)
        what = {"POST": "create", "DELETE": "delete", "GET": "get" if name else "list"}[verb]
        if f"{what} {kind}" in self.forbidden:
            whom = f'User "system:serviceaccount:{namespace}:search" cannot {what} resource "{kind}" in API group'
            raise RefusalError(403, "Forbidden", f'{kind} is forbidden: {whom} in the namespace "{namespace}"')
        with self.changed:
            if what == "list":
                return self.listed(namespace, kind, query)
            if what == "create":
                return self.create(namespace, body)
            item = self.objects[kind].get(name)
            if item is None or item["metadata"]["namespace"] != namespace:
                raise RefusalError(404, "NotFound", f'{kind}.batch "{name}" not found')
            return item if what == "get" else self.delete(item, body)

    def arrive(self) -> None:
        """Let creates that were on their way arrive."""
        delayed, self.delayed = self.delayed, []
        for namespace, body in delayed:
            with suppress(RefusalError):
                self.create(namespace, body)

    def listed(self, namespace: str, kind: str, query: Mapping[str, str]) -> Object:
        version, begin = self.version, 0
        if more := query.get("continue"):
            version, begin = (int(part) for part in more.split("."))
            if version < self.oldest:
                raise RefusalError(410, "Expired", "The provided continue parameter is too old")
        found = [item for item in self.objects[kind].values() if chosen(item, namespace, query) and self.shown(item)]
        lines = [one for item in found for one in (item, *self.repeated.get(item["metadata"]["name"], ()))]
        size = min(int(query.get("limit", 10_000)), self.page)
        meta = {"resourceVersion": str(version)}
        if begin + size < len(lines):
            meta["continue"] = f"{version}.{begin + size}"
        api, each = KINDS[kind]
        return {"apiVersion": api, "kind": f"{each}List", "metadata": meta, "items": lines[begin : begin + size]}

    def shown(self, item: Object) -> bool:
        owners = [owner["name"] for owner in item["metadata"].get("ownerReferences", ())]
        return not self.hidden & {item["metadata"]["name"], *owners}

    def create(self, namespace: str, body: Object) -> Object:
        name = body["metadata"]["name"]
        if namespace not in self.namespaces:
            raise RefusalError(404, "NotFound", f'namespaces "{namespace}" not found')
        if self.refusal is not None:
            raise RefusalError(*self.refusal)
        if name in self.objects["jobs"]:
            raise RefusalError(409, "AlreadyExists", f'jobs.batch "{name}" already exists')
        self.created.append(name)
        return self.make("jobs", {**copy.deepcopy(body), "status": {}})

    def delete(self, job: Object, body: Object) -> Object:
        uid = job["metadata"]["uid"]
        wanted = body.get("preconditions", {}).get("uid", uid)
        if wanted != uid:
            message = f"the UID in the precondition ({wanted}) does not match the UID in record ({uid})"
            raise RefusalError(409, "Conflict", f"Operation cannot be fulfilled on jobs.batch: {message}")
        if body.get("propagationPolicy") != "Foreground":
            raise RefusalError(422, "Invalid", "this server knows no other propagation policy")
        if not job["metadata"].get("deletionTimestamp"):
            job["metadata"]["deletionTimestamp"] = stamp(self.version)
            self.put("jobs", job)
        return job


def stamp(version: int) -> str:
    """A time as Kubernetes writes it, a second later for each version."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(STARTED + version))


def place(path: str) -> tuple[str, str, str]:
    """Namespace, kind and name of a path."""
    parts = path.partition("/namespaces/")[2].split("/")
    return parts[0], parts[1], parts[2] if len(parts) > 2 else ""


def chosen(item: Object, namespace: str, query: Mapping[str, str]) -> bool:
    """Whether a selector of labels chooses an object."""
    wanted = dict(one.split("=") for one in query.get("labelSelector", "").split(",") if one)
    meta = item["metadata"]
    meta.setdefault("namespace", namespace)
    return bool(meta["namespace"] == namespace and wanted.items() <= meta.get("labels", {}).items())


class Handler(BaseHTTPRequestHandler):
    """Calls of one connection."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    kube: FakeKube
    ended: threading.Event

    def log_message(self, format: str, *args: object) -> None:
        pass

    def do_GET(self) -> None:
        self.call("GET")

    def do_POST(self) -> None:
        self.call("POST")

    def do_DELETE(self) -> None:
        self.call("DELETE")

    def call(self, verb: str) -> None:
        url = urlparse(self.path)
        query = {key: given[-1] for key, given in parse_qs(url.query).items()}
        body = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or b"{}")
        is_watch = query.get("watch", "").lower() == "true"
        self.kube.calls.append(f"{'WATCH' if is_watch else verb} {url.path}")
        fault = self.kube.fault("WATCH" if is_watch else verb, url.path)
        if fault == "late" and verb == "POST":
            self.kube.delayed.append((place(url.path)[0], body))
        if fault in ("cut", "late") or self.ended.is_set():
            return self.cut()
        if fault == "slow":
            self.ended.wait(5.0)
        if fault == "text":
            return self.send(502, b"<html>bad gateway</html>")
        if is_watch:
            return self.watch(url.path, query)
        try:
            if fault in ("busy", "broken", "conflict"):
                code = {"busy": 429, "broken": 500, "conflict": 409}[fault]
                reason = {"busy": "TooManyRequests", "broken": "InternalError", "conflict": "Conflict"}[fault]
                raise RefusalError(code, reason, f"the server is {fault}")
            answer = self.kube.answer(verb, url.path, query, body)
            code = 201 if verb == "POST" else 200
        except RefusalError as refusal:
            answer, code = refusal.status, int(refusal.status["code"])
        if fault == "lose":
            return self.cut()
        return self.send(code, json.dumps(answer).encode())

    def send(self, code: int, text: bytes) -> None:
        self.send_response(code)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def cut(self) -> None:
        self.close_connection = True
        with suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)

    def watch(self, path: str, query: Mapping[str, str]) -> None:
        """Send events in chunks; ERROR 410 for a version that is forgotten, or later than all."""
        namespace, kind, _ = place(path)
        kube, version = self.kube, int(query.get("resourceVersion") or 0)
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        if not kube.oldest <= version <= kube.version:
            gone = RefusalError(410, "Expired", f"too old resource version: {version} ({kube.oldest})").status
            self.chunk({"type": "ERROR", "object": gone})
            return self.cut()
        deadline = time.monotonic() + float(query.get("timeoutSeconds", 60))
        with kube.changed:
            kube.watching += 1
        with suppress(OSError):
            while not self.ended.is_set() and time.monotonic() < deadline:
                with kube.changed:
                    new = [event for event in kube.events if event[0] > version and event[1] == kind]
                    if not new:
                        kube.changed.wait(0.05)
                for at, _, event, item in new:
                    version = at
                    if chosen(item, namespace, query):
                        self.chunk({"type": event, "object": item})
            if not self.ended.is_set():
                self.wfile.write(b"0\r\n\r\n")
        with kube.changed:
            kube.watching -= 1
        return self.cut()

    def chunk(self, event: Object) -> None:
        text = json.dumps(event).encode() + b"\n"
        self.wfile.write(f"{len(text):x}\r\n".encode() + text + b"\r\n")
        self.wfile.flush()


class Server(ThreadingHTTPServer):
    """A process of the server; the next one has the same port."""

    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = 64

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that is gone is no fault."""


class KubeServer:
    """A server that can be ended and started again on its port, with or without the versions that it knew."""

    def __init__(self, kube: FakeKube) -> None:
        self.kube, self.port = kube, 0
        self.start()

    def start(self, *, forgets: bool = False) -> None:
        """Start it; ``forgets``: no watch can begin from a version of before."""
        if forgets:
            self.kube.version += 1
            self.kube.compact()
        self.ended = threading.Event()
        handler = type("Calls", (Handler,), {"kube": self.kube, "ended": self.ended})
        self._server = Server(("127.0.0.1", self.port), handler)
        self.port = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End it with all connections: those that are open are cut at their next call."""
        self.ended.set()
        with self.kube.changed:
            self.kube.changed.notify_all()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def kubeconfig(self, namespace: str = "team") -> str:
        """A kubeconfig that names it."""
        cluster = {"server": f"http://127.0.0.1:{self.port}"}
        context = {"cluster": "here", "user": "me", "namespace": namespace}
        return json.dumps(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "current-context": "here",
                "clusters": [{"name": "here", "cluster": cluster}],
                "users": [{"name": "me", "user": {"token": "t"}}],
                "contexts": [{"name": "here", "context": context}],
            }
        )


@contextmanager
def kube_server() -> Iterator[KubeServer]:
    """A server with nothing in it."""
    server = KubeServer(FakeKube())
    try:
        yield server
    finally:
        server.stop()
