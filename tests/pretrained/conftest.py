import threading

import pytest
from weights_server import Server


@pytest.fixture
def server(tmp_path, monkeypatch):
    """Stands in the place of the authors' hosts, beside a cache that is empty."""
    server = Server()
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    monkeypatch.setenv("KERAS_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("CCT_KERAS_WEIGHTS_URL", server.url)
    yield server
    server.shutdown()
    server.server_close()
    thread.join()
