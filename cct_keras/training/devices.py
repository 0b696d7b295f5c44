"""Several devices of one machine, or several machines, for one run.

On TensorFlow `tf.distribute.MirroredStrategy` puts the model on the devices of one
machine, on JAX `keras.distribution.DataParallel` on those of one or more. Keras 3's
`fit` does not work under MultiWorkerMirroredStrategy.
"""

import contextlib
import json
import time

import keras
import numpy as np

from cct_keras.training.recipe import Recipe
from cct_keras.training.recipe import RecipeError
from cct_keras.training.rendezvous import meet
from cct_keras.training.run_folder import RunError
from cct_keras.training.run_folder import differing_settings

# After so long without a sign of life JAX gives a machine up.
HEARTBEAT_SECONDS = 30
# Key of what a machine says in place of its settings.
ERROR = "error"


class Devices:
    """Where a run computes: by default one device of one machine.

    Args:
        replicas: Copies of the model on all machines together.
        host: Number of this machine.
        hosts: Number of machines.
        strategy: The engine's own: a `tf.distribute.Strategy` or a
            `keras.distribution.Distribution`.
    """

    def __init__(
        self, replicas: int = 1, *, host: int = 0, hosts: int = 1, strategy=None
    ):
        self.replicas = replicas
        self.host = host
        self.hosts = hosts
        self.strategy = strategy

    @property
    def is_first(self) -> bool:
        """Whether this machine is the one that writes and prints."""
        return self.host == 0

    @property
    def shard(self) -> tuple[int, int]:
        """Which part of every batch this machine feeds, of how many."""
        return self.host, self.hosts

    @property
    def mirrored(self) -> bool:
        """Whether TensorFlow keeps a copy of the model on each device."""
        return self.replicas > 1 and keras.config.backend() == "tensorflow"

    def scope(self):
        """Inside it models are built, compiled and trained."""
        return self.strategy.scope() if self.strategy else contextlib.nullcontext()

    @contextlib.contextmanager
    def local(self):
        """Inside it, within the scope, a model belongs to this machine alone."""
        if self.strategy is None or self.mirrored:
            yield
            return
        keras.distribution.set_distribution(None)
        try:
            yield
        finally:
            keras.distribution.set_distribution(self.strategy)

    def check(self, recipe: Recipe, images: int) -> None:
        """Refuses what the engine would compute wrongly, or not at all.

        Args:
            recipe: The recipe.
            images: Training images.
        """
        batch = min(recipe.batch_size, images)
        if batch % self.replicas:
            raise RecipeError(
                f"a batch of {batch} images cannot be split evenly over "
                f"{self.replicas} devices: give another --batch-size"
            )
        if self.mirrored and recipe.accumulate > 1:
            raise RecipeError(
                "TensorFlow cannot accumulate gradients on several devices: use "
                "--accumulate 1, or KERAS_BACKEND=jax"
            )

    # === Between machines ===

    def agree(self, settings: dict) -> None:
        """Makes sure that all machines are about to do the same."""
        if self.hosts == 1:
            return
        with self._others():
            texts = _gather(json.dumps(settings).encode())
        everyone = [json.loads(text) for text in texts]
        for host, theirs in enumerate(everyone):
            if ERROR in theirs and host != self.host:
                raise RunError(f"host {host}: {theirs[ERROR]}")
        for host, theirs in enumerate(everyone):
            found = differing_settings(everyone[0], theirs)
            if found and ERROR not in settings:
                raise RunError(f"host {host} disagrees with host 0: {found}")

    def fail(self, error: Exception) -> None:
        """Tells the others, who are about to agree, why this machine cannot."""
        with contextlib.suppress(RunError):
            self.agree({ERROR: str(error)})

    def broadcast(self, content: bytes | None) -> bytes:
        """The first machine's bytes, on all machines."""
        if self.hosts == 1:
            return content
        from jax.experimental import multihost_utils

        with self._others():
            size = np.array([len(content or b"")], "uint32")
            size = int(multihost_utils.broadcast_one_to_all(size)[0])
            buffer = np.zeros(size, "uint8")
            if self.is_first:
                buffer[:] = np.frombuffer(content, "uint8")
            return np.asarray(multihost_utils.broadcast_one_to_all(buffer)).tobytes()

    @contextlib.contextmanager
    def _others(self):
        try:
            yield
        except (ValueError, RuntimeError) as error:
            if not self.is_loss_of_host(error):
                raise
            raise RunError(
                "another host ended before the training began; its own message says "
                f"why ({str(error).strip()[:100]})"
            ) from error

    def is_loss_of_host(self, error: Exception) -> bool:
        """Whether an error in `fit` says that another machine is gone."""
        words = ("gloo", "nccl", "coordination", "heartbeat", "peer")
        return self.hosts > 1 and any(word in str(error).lower() for word in words)

    def part(self) -> None:
        """Lets the machines go their own ways; the first may work on alone."""
        if self.hosts > 1:
            import jax
            from jax.experimental import multihost_utils

            with self._others():
                multihost_utils.sync_global_devices("part")
            if self.is_first:
                # It keeps the others' connections: were it gone before they have
                # left, JAX would kill them.
                time.sleep(2)
            jax.distributed.shutdown()


def _gather(content):
    """The bytes of all machines, in their order."""
    from jax.experimental import multihost_utils

    sizes = multihost_utils.process_allgather(np.array([len(content)], "uint32"))
    buffer = np.zeros(int(sizes.max()), "uint8")
    buffer[: len(content)] = np.frombuffer(content, "uint8")
    rows = np.asarray(multihost_utils.process_allgather(buffer))
    sizes = sizes.reshape(-1)
    return [row[:size].tobytes() for row, size in zip(rows, sizes, strict=True)]


def find_devices(
    devices: int | str | None = None,
    *,
    coordinator: str | None = None,
    num_hosts: int | None = None,
    host_id: int | None = None,
) -> Devices:
    """The devices of a run; with several machines it waits for all of them.

    Args:
        devices: How many of each machine, or `"all"`. By default one, with several
            machines all.
        coordinator: Address and port of the first machine, such as
            `"10.0.0.1:1234"`.
        num_hosts: Number of machines.
        host_id: Number of this machine, 0 for the first.
    """
    backend = keras.config.backend()
    hosts = (coordinator, num_hosts, host_id)
    if hosts == (None, None, None):
        if devices is None or str(devices) == "1":
            return Devices()
        if backend == "jax":
            return _jax_devices(devices)
        if backend == "tensorflow":
            return _tensorflow_devices(devices)
        raise RecipeError(
            f"several devices need KERAS_BACKEND=tensorflow or jax; this is {backend}"
        )
    if None in hosts:
        raise RecipeError(
            "several machines need all of --coordinator ADDRESS:PORT, --num-hosts N "
            "and --host-id I"
        )
    if backend != "jax":
        raise RecipeError(
            f"several machines need KERAS_BACKEND=jax; this is {backend}, where Keras "
            "3 cannot train on more than one"
        )
    meet(coordinator, num_hosts, host_id)
    _join(coordinator, num_hosts, host_id)
    return _jax_devices("all" if devices is None else devices)


def _join(coordinator, num_hosts, host_id):
    """Joins JAX's cluster.

    `keras.distribution.initialize` does the same, but cannot pass these settings:
    with JAX's own, a lost machine is noticed after minutes and kills the process.
    """
    import jax

    jax.config.update("jax_enable_recoverability", True)
    # It would swallow SIGTERM.
    jax.config.update("jax_enable_preemption_service", False)
    try:
        jax.distributed.initialize(
            coordinator,
            num_hosts,
            host_id,
            initialization_timeout=60,
            heartbeat_timeout_seconds=HEARTBEAT_SECONDS,
        )
    except RuntimeError as error:
        raise RunError(f"cannot join the other machines: {error}") from error


def _jax_devices(devices):
    import jax

    here = jax.local_device_count()
    count = _count(devices, here)
    chosen = [
        f"{device.platform}:{device.id}"
        for host in range(jax.process_count())
        for device in [d for d in jax.devices() if d.process_index == host][:count]
    ]
    return Devices(
        len(chosen),
        host=jax.process_index(),
        hosts=jax.process_count(),
        strategy=keras.distribution.DataParallel(
            devices=chosen, auto_shard_dataset=False
        ),
    )


def _tensorflow_devices(devices):
    import tensorflow as tf

    kind = "GPU" if tf.config.list_logical_devices("GPU") else "CPU"
    here = [device.name for device in tf.config.list_logical_devices(kind)]
    count = _count(devices, len(here))
    if count == 1:
        return Devices()
    strategy = tf.distribute.MirroredStrategy(here[:count])
    return Devices(count, strategy=strategy)


def _count(devices, here):
    if devices == "all":
        return here
    try:
        count = int(devices)
    except ValueError:
        count = 0
    if count < 1:
        raise RecipeError(
            f"`devices` must be a number or 'all'. Received: devices={devices!r}"
        )
    if count > here:
        raise RecipeError(
            f"this machine has {here} device(s). Received: devices={count}"
        )
    return count


def reduced(optimizer_class: type) -> type:
    """An optimizer class for `MirroredStrategy` that sums gradients first.

    Keras clips and looks for infinities in the gradients of each replica by itself,
    and sums up only then. Here they are summed, and divided by the replicas since
    Keras sums once more: clip at a norm that is divided likewise.
    """
    import tensorflow as tf

    class Reduced(optimizer_class):
        def apply(self, grads, trainable_variables=None):
            context = tf.distribute.get_replica_context()
            if context is not None:
                count = context.num_replicas_in_sync
                total = context.all_reduce(tf.distribute.ReduceOp.SUM, list(grads))
                grads = [gradient / count for gradient in total]
            return super().apply(grads, trainable_variables)

    return Reduced
