"""Machines find each other before JAX starts."""

import socket
import threading

import pytest
from machines import free_port

from cct_keras.distributed.rendezvous import meet
from cct_keras.errors import RunError


def gather(*hosts, seconds=10, port=None, monkeypatch):
    """What each of these `(num_hosts, host_id)` is told: `None` or an error."""
    monkeypatch.setenv("CCT_KERAS_HOST_TIMEOUT", str(seconds))
    address = f"127.0.0.1:{port or free_port()}"
    errors = [None] * len(hosts)

    def run(index, num_hosts, host_id):
        try:
            meet(address, num_hosts, host_id)
        except RunError as error:
            errors[index] = str(error)

    threads = [
        threading.Thread(target=run, args=(i, *host)) for i, host in enumerate(hosts)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return errors


def test_all_are_there(monkeypatch):
    errors = gather((3, 2), (3, 0), (3, 1), monkeypatch=monkeypatch)
    assert errors == [None, None, None]


def test_one_does_not_come(monkeypatch):
    first, second = gather((3, 0), (3, 2), seconds=0.5, monkeypatch=monkeypatch)
    assert first == second == "not all hosts came in time; missing: 1"


def test_the_first_does_not_come(monkeypatch):
    (errors,) = gather((2, 1), seconds=0.5, monkeypatch=monkeypatch)
    assert "the first host did not answer at 127.0.0.1:" in errors


def test_two_of_one_number(monkeypatch):
    errors = gather((3, 0), (3, 1), (3, 1), monkeypatch=monkeypatch)
    assert errors == ["two hosts have host_id=1"] * 3


def test_two_numbers_of_hosts(monkeypatch):
    errors = gather((2, 0), (3, 1), monkeypatch=monkeypatch)
    assert errors == ["host 1 disagrees with host 0: num_hosts=3 instead of 2"] * 2


def test_a_port_in_use(monkeypatch):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        (errors,) = gather((2, 0), port=port, monkeypatch=monkeypatch)
    assert "cannot listen at" in errors


def test_a_stranger_at_the_door(monkeypatch):
    port = free_port()

    def knock():
        for content in (b"GET / HTTP/1.1\r\n", b"{}\n", b"[1]\n", b'"x"\n', b""):
            for _ in range(20):
                try:
                    with socket.create_connection(("127.0.0.1", port), 1) as stranger:
                        stranger.sendall(content)
                    break
                except OSError:
                    threading.Event().wait(0.02)

    thread = threading.Thread(target=knock)
    thread.start()
    errors = gather((2, 0), (2, 1), port=port, monkeypatch=monkeypatch)
    thread.join()
    assert errors == [None, None]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("10.0.0.1", 2, 0), "must be ADDRESS:PORT"),
        (("10.0.0.1:x", 2, 0), "must be ADDRESS:PORT"),
        (
            ("127.0.0.1:1", 2, 2),
            "`host_id` must be from 0 to 1.*host_id=2",
        ),
    ],
)
def test_wrong_addresses(arguments, message):
    with pytest.raises(RunError, match=message):
        meet(*arguments)
