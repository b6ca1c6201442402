"""Local truth: moto behind a lock, in this process or as a server in a child process.

moto is what local runs and tests work on, and it has no atomicity of its own. `template`, `resources`, `poller` and
`worker` hold the rest of a local run; only this module (and `testing`) loads moto.
"""

from __future__ import annotations

import copy
import functools
import logging
import os
import pickle
import select
import subprocess
import sys
import threading
from collections import deque
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from onceq.client import forget_session
from onceq.clock import SystemClock
from onceq.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from types import TracebackType

HOST = "127.0.0.1"
# moto's own account; the region of the events in events/. Never a real one: local runs must not reach AWS.
REGION = "us-east-1"
AWS_VARIABLES = {
    "AWS_ACCESS_KEY_ID": "local",
    "AWS_SECRET_ACCESS_KEY": "local",
    "AWS_DEFAULT_REGION": REGION,
    "AWS_REGION": REGION,
}
SERVE = "from onceq.local import serve_moto; serve_moto()"
START_SECONDS = 30.0
STOP_SECONDS = 5.0
# A long poll looks again this often, since moto tells nobody when a visibility timeout is over.
POLL_SECONDS = 0.1


def serialise_moto() -> None:
    """Let moto carry out one request at a time, in this process, from now on. Calling it twice is harmless.

    moto 5.2.5 evaluates a condition and writes in two steps without a lock, and a failing transaction puts back whole
    tables, so conditional writes race between threads. Its SQS deletes by writing a filtered copy of the queue back,
    and a message sent meanwhile is gone. AWS promises better; one re-entrant lock for each service gives it back.
    """
    from moto.dynamodb.responses import DynamoHandler  # noqa: PLC0415 - only local runs load moto
    from moto.sqs.models import SQSBackend  # noqa: PLC0415

    if getattr(DynamoHandler.call_action, "is_serialised", False):
        return
    _lock_methods(DynamoHandler, threading.RLock(), "call_action")
    lock = threading.RLock()
    receive = SQSBackend.receive_message
    _lock_methods(SQSBackend, lock, "send_message", "delete_message", "change_message_visibility", "purge_queue")
    SQSBackend.receive_message = _patient(receive, lock)  # type: ignore[method-assign]
    SQSBackend.is_message_valid_based_on_retention_period = _is_retained  # type: ignore[method-assign]


def _lock_methods(owner: type, lock: Any, *names: str) -> None:
    for name in names:
        setattr(owner, name, _locked(getattr(owner, name), lock))


def _locked(unlocked: Callable[..., Any], lock: Any) -> Callable[..., Any]:
    @functools.wraps(unlocked)
    def serialised(*arguments: Any, **options: Any) -> Any:
        with lock:
            return unlocked(*arguments, **options)

    serialised.is_serialised = True  # type: ignore[attr-defined]  # the mark looked for above
    return serialised


def _patient(unlocked: Callable[..., Any], lock: Any) -> Callable[..., Any]:
    """Return moto's receive with the long poll outside the lock: nobody could send to a poller that holds it."""
    clock = SystemClock()

    @functools.wraps(unlocked)
    def serialised(
        self: Any, queue_name: str, count: int, wait_seconds_timeout: float, *arguments: Any, **options: Any
    ) -> Any:
        end = clock.monotonic() + wait_seconds_timeout
        while True:
            with lock:
                messages = unlocked(self, queue_name, count, 0, *arguments, **options)
            if messages or clock.monotonic() >= end:
                return messages
            queue = self.get_queue(queue_name)
            if queue.messages:
                # Visible, and of a FIFO group that is in flight: to wait for messages would be to ask without a pause.
                clock.sleep(POLL_SECONDS)
            else:
                queue.wait_for_messages(POLL_SECONDS)

    return serialised


def _is_retained(self: Any, queue_name: str, message: Any) -> bool:
    """Answer as moto does, without its count of the whole queue: receiving ten of 300 messages took 0.3 s with it."""
    retained_until = self.get_queue(queue_name).message_retention_period + message.sent_timestamp / 1000
    return bool(retained_until > SystemClock().now_ms() / 1000)


@functools.cache
def quicken_moto() -> None:
    """Let moto, in this process, work out once what it works out at every request: a third of what a request costs.

    And botocore read once what each session reads again: its descriptions of the services. Only what follows from its
    argument alone, and is never changed afterwards: what moto answers is the same.
    """
    from botocore.loaders import JSONFileLoader  # noqa: PLC0415 - `import onceq` must not load botocore
    from moto.core import responses  # noqa: PLC0415 - only local runs load moto
    from moto.dynamodb.comparisons import ConditionExpressionParser  # noqa: PLC0415 - as above
    from moto.dynamodb.parsing import ast_nodes, expressions, validators  # noqa: PLC0415 - as above
    from moto.sqs import models  # noqa: PLC0415 - as above

    loader: Any = JSONFileLoader
    read = functools.cache(loader().load_file)
    loader.load_file = lambda _, path: read(path)
    remember = functools.lru_cache(maxsize=1_024)
    names: list[Any] = [responses, models]
    parsing: list[Any] = [ast_nodes, expressions, validators]  # they have no types
    names[0].method_names_from_class = remember(names[0].method_names_from_class)
    for module in names:
        module.camelcase_to_underscores = remember(module.camelcase_to_underscores)
    parse = parsing[1].UpdateExpressionParser.make

    def parsed(text: str) -> Any:
        tree = parse(text)
        tree.pickled = pickle.dumps(tree)
        return tree

    def copied(node: Any) -> Any:
        # Whoever validates an expression changes a copy of it; to copy it node by node takes five times as long.
        return pickle.loads(node.pickled) if hasattr(node, "pickled") else copy.deepcopy(node)  # noqa: S301 - ours

    parsing[1].UpdateExpressionParser.make = remember(parsed)
    parsing[2].deepcopy = copied
    conditions: Any = ConditionExpressionParser
    lex = conditions._lex_condition_expression  # noqa: SLF001 - moto's own
    lexed = remember(lambda text: tuple(lex(conditions(text, None, None))))
    conditions._lex_condition_expression = lambda parser: deque(lexed(parser.condition_expression))  # noqa: SLF001 - as above
    kinds: dict[type, tuple[type, ...]] = {}

    def nodes(traverser: Any) -> tuple[type, ...]:
        # Asked for at every node of an expression, eleven times an update.
        kind = type(traverser)
        if kind not in kinds:
            kinds[kind] = tuple(traverser._processing_map())  # noqa: SLF001 - moto's own table
        return kinds[kind]

    parsing[0].DepthFirstTraverser.nodes_to_be_processed = nodes


@contextmanager
def embedded_moto() -> Iterator[None]:
    """Let this process's AWS clients talk to locked moto inside it, with credentials that are nobody's.

    Clients must be made inside the block.
    """
    from moto import mock_aws  # noqa: PLC0415 - only local runs load moto

    serialise_moto()
    quicken_moto()
    forget_session()
    plain = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    # A client of DynamoDB with an account in its address is not met by moto's patterns.
    local = AWS_VARIABLES | {"AWS_ACCOUNT_ID_ENDPOINT_MODE": "disabled"}
    try:
        with replaced_environment(plain | local), mock_aws():
            yield
    finally:
        forget_session()  # it has nobody's credentials


@contextmanager
def replaced_environment(environ: Mapping[str, str]) -> Iterator[None]:
    """Let this process have another environment, and its own again after the block."""
    before = dict(os.environ)
    os.environ.clear()
    os.environ.update(environ)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


class MotoServer:
    """Locked moto as a server in a child process, on 127.0.0.1 and a free port.

    The child has a session of its own, so that Ctrl-C reaches only the parent, which still needs it for its last
    writes. It ends with the block, or when the parent dies: it holds the other end of a pipe.

    Example::

        with MotoServer() as server:
            os.environ["AWS_ENDPOINT_URL"] = server.endpoint
    """

    def __init__(self) -> None:
        """Start nothing yet."""
        self._process: subprocess.Popen[bytes] | None = None
        self.endpoint = ""

    @property
    def pid(self) -> int | None:
        """The child's process id, while it runs."""
        return self._process.pid if self._process else None

    def __enter__(self) -> Self:
        """Start the child and wait until it answers.

        Raises:
            ConfigurationError: If it does not start; its own words are on stderr.
        """
        self._process = subprocess.Popen(  # noqa: S603 - this Python, with a program of ours
            [sys.executable, "-c", SERVE],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
            env=child_environment(os.environ | AWS_VARIABLES),
        )
        stdout = self._process.stdout
        assert stdout is not None  # noqa: S101 - it was asked for above
        ready, _, _ = select.select([stdout], [], [], START_SECONDS)
        self.endpoint = stdout.readline().decode().strip() if ready else ""
        if not self.endpoint:
            self.stop()
            message = "locked moto did not start: are the local requirements installed (moto, PyYAML)?"
            raise ConfigurationError(message)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the child."""
        self.stop()

    def stop(self) -> None:
        """End the child, by closing its pipe and by its process id if that does not help."""
        process, self._process = self._process, None
        if process is None:
            return
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def serve_moto() -> None:
    """Serve locked moto until stdin ends; say the endpoint on stdout. This is the child's whole life."""
    from moto.moto_server.threaded_moto_server import ThreadedMotoServer  # noqa: PLC0415 - only local runs load moto

    serialise_moto()
    quicken_moto()
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(HOST, 0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    sys.stdout.write(f"http://{host}:{port}\n")
    sys.stdout.flush()
    sys.stdin.buffer.read()
    # Not `server.stop()`: it waits for requests, and nobody is left to read their answers.
    os._exit(0)


def child_environment(environ: dict[str, str]) -> dict[str, str]:
    """Return an environment in which a child of this Python finds the framework.

    Args:
        environ: What the child gets otherwise.

    Returns:
        The same with this package's folder first on ``PYTHONPATH``.
    """
    source = str(Path(__file__).resolve().parent.parent)
    paths = [source, *environ.get("PYTHONPATH", "").split(os.pathsep)]
    return environ | {"PYTHONPATH": os.pathsep.join(dict.fromkeys(path for path in paths if path))}
