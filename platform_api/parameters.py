"""What callers say beside a body, alike for several resources."""

from typing import Annotated, Literal

from fastapi import Query

PAGE_LIMIT = 500
"""Objects of one page, at most."""

PageToken = Annotated[str | None, Query(alias="continue", max_length=4_096, description="The next page.")]
WaitRecorded = Annotated[
    Literal["recorded"] | None, Query(description="Answer when its stack is recorded, or after 30 s.")
]
