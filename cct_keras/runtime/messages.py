"""Messages of other libraries."""


def first_line(error: Exception) -> str:
    """What an error says, in one line.

    Example:

    >>> first_line(ValueError("no such thing\\nat line 7"))
    'no such thing'
    """
    lines = str(error).strip().splitlines()
    return lines[0].strip() if lines else type(error).__name__
