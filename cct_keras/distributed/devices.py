"""One training run on several devices of one machine, or on several machines.

On TensorFlow `tf.distribute.MirroredStrategy` copies the model to the devices of one
machine; on JAX `keras.distribution.DataParallel` copies it to the devices of one or
more machines. `fit` of Keras 3 does not work under TensorFlow's
`MultiWorkerMirroredStrategy`.
"""

import contextlib
import json
import time

import keras
import numpy as np

from cct_keras.distributed.rendezvous import meet
from cct_keras.errors import RecipeError
from cct_keras.errors import RunError
from cct_keras.recipes.recipe import Recipe
from cct_keras.recipes.run_settings import differing_settings

# After so many seconds without a sign of life JAX counts a machine as lost.
HEARTBEAT_SECONDS = 30
# Key under which a machine reports an error instead of its settings.
ERROR = "error"


class Devices:
    """The devices that a run computes on: by default one device of one machine.

    Args:
        replicas: Copies of the model on all machines together.
        host: Number of this machine.
        hosts: Number of machines.
        strategy: What distributes the computation: a `tf.distribute.Strategy` on
            TensorFlow, a `keras.distribution.Distribution` on JAX.

    Example:

    >>> Devices().is_first
    True
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
        """Whether this is the first machine, the one that writes and prints."""
        return self.host == 0

    @property
    def shard(self) -> tuple[int, int]:
        """Number of this machine, and how many machines share a batch."""
        return self.host, self.hosts

    @property
    def mirrored(self) -> bool:
        """Whether TensorFlow keeps a copy of the model on each device."""
        return self.replicas > 1 and keras.config.backend() == "tensorflow"

    def scope(self):
        """A context in which models are built, compiled and trained."""
        return self.strategy.scope() if self.strategy else contextlib.nullcontext()

    @contextlib.contextmanager
    def local(self):
        """A context inside `scope` in which a model belongs to this machine alone."""
        if self.strategy is None or self.mirrored:
            yield
            return
        keras.distribution.set_distribution(None)
        try:
            yield
        finally:
            keras.distribution.set_distribution(self.strategy)

    def check(self, recipe: Recipe, images: int) -> None:
        """Refuses recipes that several devices would compute wrongly, or not at all.

        Args:
            recipe: The recipe.
            images: Number of training images.
        """
        batch = min(recipe.batch_size, images)
        if batch % self.replicas:
            raise RecipeError(
                f"a batch of {batch} images cannot be split evenly over "
                f"{self.replicas} devices. Received: batch_size={recipe.batch_size}"
            )
        if self.mirrored and recipe.accumulate > 1:
            raise RecipeError(
                "TensorFlow cannot accumulate gradients on several devices: use "
                "accumulate=1, or the JAX backend. "
                f"Received: accumulate={recipe.accumulate}"
            )

    # === Between machines ===

    def agree(self, settings: dict) -> None:
        """Makes sure that all machines are about to start the same run.

        Args:
            settings: What decides the run, as plain JSON values.

        Raises:
            RunError: The settings of another machine differ, or it has failed.
        """
        if self.hosts == 1:
            return
        with self._other_machines():
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
        """Tells the other machines, which wait in `agree`, why this one cannot go on.

        Args:
            error: What went wrong.
        """
        with contextlib.suppress(RunError):
            self.agree({ERROR: str(error)})

    def broadcast(self, content: bytes | None) -> bytes:
        """Sends bytes from the first machine to all machines.

        Args:
            content: The bytes; only those of the first machine count.

        Returns:
            The bytes of the first machine.
        """
        if self.hosts == 1:
            return content
        from jax.experimental import multihost_utils

        with self._other_machines():
            size = np.array([len(content or b"")], "uint32")
            size = int(multihost_utils.broadcast_one_to_all(size)[0])
            buffer = np.zeros(size, "uint8")
            if self.is_first:
                buffer[:] = np.frombuffer(content, "uint8")
            return np.asarray(multihost_utils.broadcast_one_to_all(buffer)).tobytes()

    @contextlib.contextmanager
    def _other_machines(self):
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
        """Whether an error in `fit` means that another machine is gone.

        Args:
            error: The error.
        """
        words = ("gloo", "nccl", "coordination", "heartbeat", "peer")
        return self.hosts > 1 and any(word in str(error).lower() for word in words)

    def disband(self) -> None:
        """Ends the work of the machines together; the first may go on alone."""
        if self.hosts > 1:
            import jax
            from jax.experimental import multihost_utils

            with self._other_machines():
                multihost_utils.sync_global_devices("disband")
            if self.is_first:
                # The first machine keeps the connections of the others. If it were
                # gone before they have left, JAX would kill them.
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
    """Finds the devices of a run, and with several machines waits for all of them.

    Args:
        devices: How many devices of each machine, or `"all"`. By default one device
            of a single machine, and all devices of several machines.
        coordinator: Address and port of the first machine, such as
            `"10.0.0.1:1234"`.
        num_hosts: Number of machines.
        host_id: Number of this machine, 0 for the first.

    Returns:
        The `Devices`.

    Example:

    >>> find_devices().replicas
    1
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
            "several devices need the Keras backend TensorFlow or JAX; this is "
            f"{backend}"
        )
    if None in hosts:
        raise RecipeError(
            "several machines need `coordinator`, `num_hosts` and `host_id`. Received: "
            f"coordinator={coordinator!r}, num_hosts={num_hosts}, host_id={host_id}"
        )
    if backend != "jax":
        raise RecipeError(
            f"several machines need the Keras backend JAX; this is {backend}, with "
            "which Keras 3 cannot train on more than one"
        )
    meet(coordinator, num_hosts, host_id)
    _join(coordinator, num_hosts, host_id)
    return _jax_devices("all" if devices is None else devices)


def _join(coordinator, num_hosts, host_id):
    """Joins JAX's cluster.

    `keras.distribution.initialize` does the same, but cannot pass these settings. With
    JAX's own settings a lost machine is noticed only after minutes, and then kills the
    process.
    """
    import jax

    jax.config.update("jax_enable_recoverability", True)
    # The service would swallow SIGTERM.
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
    """An optimizer class for `MirroredStrategy` that sums the gradients first.

    Keras clips the gradients of each replica by themselves, looks for infinities in
    each by itself, and sums them only afterwards. This class sums them before. Because
    Keras sums once more, it also divides them by the number of replicas, and so must
    the norm be at which they are clipped.

    Args:
        optimizer_class: The class of a Keras optimizer.

    Returns:
        A subclass of it.

    Example:

    >>> reduced(keras.optimizers.SGD)(0.1).momentum
    0.0
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
