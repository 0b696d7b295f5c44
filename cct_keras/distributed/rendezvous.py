"""Machines find each other before JAX starts.

JAX waits a long time for a machine that does not come, and then kills the process. It
also does not notice if machines disagree on their number. So the machines first talk to
each other on the same port, and whatever is wrong becomes an error of one line on each.
"""

import contextlib
import json
import os
import socket
import time

from cct_keras.errors import RunError

LONGEST_MESSAGE = 10_000


def meet(coordinator: str, num_hosts: int, host_id: int) -> None:
    """Waits until all machines are there and agree on their numbers.

    The environment variable `CCT_KERAS_HOST_TIMEOUT` is how many seconds to wait, by
    default 300.

    Args:
        coordinator: Address and port of the first machine.
        num_hosts: Number of machines.
        host_id: Number of this machine.

    Raises:
        RunError: A machine is missing, or the machines disagree.

    Example:

    >>> meet("10.0.0.1:1234", num_hosts=2, host_id=0)  # it waits # doctest: +SKIP
    """
    address, _, port = str(coordinator).rpartition(":")
    if not address or not port.isdigit():
        raise RunError(
            "`coordinator` must be ADDRESS:PORT of the first host. "
            f"Received: coordinator={coordinator!r}"
        )
    if not 0 <= host_id < num_hosts:
        raise RunError(
            f"`host_id` must be from 0 to {num_hosts - 1}, for {num_hosts} hosts. "
            f"Received: host_id={host_id}"
        )
    server_address = (address.strip("[]"), int(port))
    deadline = time.monotonic() + float(os.environ.get("CCT_KERAS_HOST_TIMEOUT", 300))
    introduce = _gather_all if host_id == 0 else _report
    introduce(server_address, {"hosts": num_hosts, "host": host_id}, deadline)


def _gather_all(server_address, hello, deadline):
    """What the first machine does: it hears all others, and then answers them all."""
    family = socket.AF_INET6 if ":" in server_address[0] else socket.AF_INET
    try:
        server = socket.create_server(server_address, family=family)
    except OSError as error:
        raise RunError(
            f"cannot listen at {_text(server_address)}: {error.strerror}; choose "
            "another port"
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
                continue  # Some other program has connected.
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
            f"host {theirs['host']} disagrees with host 0: num_hosts="
            f"{theirs['hosts']} instead of {hello['hosts']}"
        )
    if theirs["host"] in arrived or theirs["host"] == 0:
        return f"two hosts have host_id={theirs['host']}"
    return None


def _report(server_address, hello, deadline):
    """What every other machine does: it reports to the first one."""
    while True:
        left = deadline - time.monotonic()
        if left <= 0:
            raise RunError(f"the first host did not answer at {_text(server_address)}")
        try:
            with socket.create_connection(
                server_address, timeout=min(5, left)
            ) as connection:
                _send(connection, hello)
                connection.settimeout(max(0.01, deadline + 5 - time.monotonic()))
                reply = _read(connection)
                break
        except (OSError, ValueError):
            time.sleep(0.2)
    if reply["error"] is not None:
        raise RunError(reply["error"])


def _send(connection, message):
    connection.sendall(json.dumps(message).encode() + b"\n")


def _read(connection):
    with connection.makefile("rb") as lines:
        line = lines.readline(LONGEST_MESSAGE)
    if not line.endswith(b"\n"):
        raise ValueError("not a message")
    return json.loads(line)


def _text(server_address):
    return f"{server_address[0]}:{server_address[1]}"
