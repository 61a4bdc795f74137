"""What is wrong with a value, in words for whoever wrote it."""

from pydantic_core import ErrorDetails


def sentence_of(error: ErrorDetails) -> str:
    """What pydantic said, as the end of a sentence that begins with the field."""
    match error["type"]:
        case "missing":
            return "is required"
        case "extra_forbidden":
            return "is not a field that is known here"
    words = error["msg"].removeprefix("Input ").removeprefix("Value error, ")
    return words[:1].lower() + words[1:]
