"""What reading a file may take: every size is counted before it is believed."""

from cct_keras.errors import CheckpointError

# In bytes, and for each byte of the file. Tables of names and layouts may copy each
# tensor once more, so that all in all it is twice as much.
AT_LEAST, FOR_EACH_BYTE = 30 * 2**20, 6
# What Python's objects take at most: one that an opcode of a pickle makes, with its
# place in the memo; the view of a tensor; for each byte of a pickle's long strings, of
# a zip file's directory, of a header in JSON.
OPCODE, TENSOR, STRING_BYTE, DIRECTORY_BYTE, JSON_BYTE = 128, 1024, 5, 16, 40


class Allowance:
    """The memory that one file and everything inside it may take together.

    It is handed on to what is packed into the file, and so is not granted twice.

    Args:
        file_size: Bytes of the file as it lies on the disk.

    Example:

    >>> allowance = Allowance(file_size=1000)
    >>> allowance.take(1000, "data.pkl")
    >>> allowance.take(10**9, "data.pkl")
    Traceback (most recent call last):
    cct_keras.errors.CheckpointError: data.pkl declares far more than the file can hold
    """

    def __init__(self, file_size: int):
        self.left = AT_LEAST + FOR_EACH_BYTE * file_size

    def take(self, size: int, what: str) -> None:
        """Counts memory that is about to be taken, or refuses the file.

        Args:
            size: Bytes.
            what: What a message calls the part of the file that wants them.
        """
        if size > self.left:
            raise CheckpointError(f"{what} declares far more than the file can hold")
        self.left -= size
