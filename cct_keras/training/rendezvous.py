"""Machines find each other before JAX is told of them.

JAX waits for a machine that does not come until it gives up, and then kills the
process; it lets machines disagree on their number. Here the same port is used first
for a word between them, so that whatever is wrong is said in a line on each.
"""

import contextlib
import json
import os
import socket
import time

from cct_keras.training.run_folder import RunError

LONGEST_MESSAGE = 10_000


def meet(coordinator: str, num_hosts: int, host_id: int) -> None:
    """Waits until all machines are there and agree on who they are.

    `CCT_KERAS_HOST_TIMEOUT` is how many seconds to wait, by default 300.

    Args:
        coordinator: Address and port of the first machine.
        num_hosts: Number of machines.
        host_id: Number of this one.
    """
    address, _, port = str(coordinator).rpartition(":")
    if not address or not port.isdigit():
        raise RunError(
            "--coordinator must be ADDRESS:PORT of the first host. "
            f"Received: {coordinator}"
        )
    if not 0 <= host_id < num_hosts:
        raise RunError(
            f"--host-id must be from 0 to {num_hosts - 1}, for {num_hosts} hosts. "
            f"Received: {host_id}"
        )
    place = (address.strip("[]"), int(port))
    deadline = time.monotonic() + float(os.environ.get("CCT_KERAS_HOST_TIMEOUT", 300))
    meeting = _receive_all if host_id == 0 else _report
    meeting(place, {"hosts": num_hosts, "host": host_id}, deadline)


def _receive_all(place, hello, deadline):
    """The first machine's part: it hears everyone, then answers everyone."""
    family = socket.AF_INET6 if ":" in place[0] else socket.AF_INET
    try:
        server = socket.create_server(place, family=family)
    except OSError as error:
        raise RunError(
            f"cannot listen at {_text(place)}: {error.strerror}; choose another port"
        ) from error
    arrived = {}
    with server, contextlib.ExitStack() as connections:
        error = None
        while error is None and len(arrived) < hello["hosts"] - 1:
            server.settimeout(max(0.01, deadline - time.monotonic()))
            try:
                connection, _ = server.accept()
            except TimeoutError:
                missing = set(range(1, hello["hosts"])) - set(arrived)
                names = ", ".join(map(str, sorted(missing)))
                error = f"not all hosts came in time; missing: {names}"
                break
            connections.enter_context(connection)
            connection.settimeout(10)
            try:
                theirs = _read(connection)
                error = _objection(hello, theirs, arrived)
            except (OSError, ValueError, KeyError, TypeError):
                continue  # Somebody else's knock at the door.
            arrived.setdefault(theirs["host"], connection)
            if error is not None:
                _send(connection, {"error": error})
        for connection in arrived.values():
            with contextlib.suppress(OSError):
                _send(connection, {"error": error})
    if error is not None:
        raise RunError(error)


def _objection(hello, theirs, arrived):
    if theirs["hosts"] != hello["hosts"]:
        return (
            f"host {theirs['host']} disagrees with host 0: --num-hosts "
            f"{theirs['hosts']} for {hello['hosts']}"
        )
    if theirs["host"] in arrived or theirs["host"] == 0:
        return f"two hosts have --host-id {theirs['host']}"
    return None


def _report(place, hello, deadline):
    """The other machines' part."""
    while True:
        left = deadline - time.monotonic()
        if left <= 0:
            raise RunError(f"the first host did not answer at {_text(place)}")
        try:
            with socket.create_connection(place, timeout=min(5, left)) as connection:
                _send(connection, hello)
                connection.settimeout(max(0.01, deadline + 5 - time.monotonic()))
                answer = _read(connection)
                break
        except (OSError, ValueError):
            time.sleep(0.2)
    if answer["error"] is not None:
        raise RunError(answer["error"])


def _send(connection, message):
    connection.sendall(json.dumps(message).encode() + b"\n")


def _read(connection):
    with connection.makefile("rb") as lines:
        line = lines.readline(LONGEST_MESSAGE)
    if not line.endswith(b"\n"):
        raise ValueError("not a message")
    return json.loads(line)


def _text(place):
    return f"{place[0]}:{place[1]}"
