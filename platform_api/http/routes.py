"""The route class of every resource: an endpoint declares its body as a model, and returns the model that it answers.

| an endpoint's signature            | what the route makes of it                                                   |
| ---------------------------------- | ---------------------------------------------------------------------------- |
| `body: CreateUnit`                 | required JSON, decoded strictly by `http.bodies`                             |
| `body: Redrive = Redrive()`        | optional JSON: an empty body is the default                                  |
| `Annotated[Request, BodyOf(…)]`    | required JSON that the endpoint itself reads and decodes                     |
| `-> Envelope[UnitView]`, `Page[…]` | the documented model, and what is serialised, once                           |
| `-> Answer[Envelope[UnitView]]`    | the same, with a status or headers of its own                                |
| `-> Page[UnitView] \\| Response`    | the same, or an answer that is sent as it is, such as a stream               |
| `-> None`, `-> Response`           | no content; an answer that is sent as it is                                  |

Dependencies are solved in the order of the parameters, so that a caller is admitted before its body is read. FastAPI's
own bodies and response models are not used: they read bodies before the caller is known, and validate answers again.
"""

import inspect
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import update_wrapper
from types import UnionType
from typing import Annotated, Any, Generic, TypeVar, Union, get_args, get_origin

from fastapi import Depends
from fastapi.responses import Response
from fastapi.routing import APIRoute

from gpu_platform.api_models.envelope import Envelope, Page
from gpu_platform.domain.value import Value
from platform_api.http.bodies import JSON, REF_TEMPLATE, decoded, encode_json
from platform_api.http.capacity import hold

M = TypeVar("M", bound=Envelope[Any] | Page[Any])
Endpoint = Callable[..., Awaitable[Any]]
OK = 200
NOTHING = inspect.Parameter.empty


@dataclass(frozen=True)
class Answer(Generic[M]):
    """An answer whose status or headers are not those of every answer of its route."""

    body: M
    status: int | None = None
    """None: the status of the route."""

    headers: Mapping[str, str] = field(default_factory=dict)
    content: bytes | None = None
    """The body as JSON, where it is encoded already."""


@dataclass(frozen=True)
class BodyOf:
    """Marks the request of an endpoint that reads the body itself, so that nothing keeps it until the answer. The body
    is documented as this model."""

    model: type[Value]


class Route(APIRoute):
    body: type[Value] | None = None
    """The model of its body."""

    def __init__(self, path: str, endpoint: Endpoint, **options: Any) -> None:
        signature = inspect.signature(endpoint)
        status: int = options["status_code"] or OK
        model = find_answer_model(signature.return_annotation)
        extra: dict[str, Any] = options["openapi_extra"] or {}
        for parameter in signature.parameters.values():
            if (body := find_body_model(parameter)) is not None:
                self.body = body
                extra = {**extra, "requestBody": _describe_body(body, is_required=parameter.default is NOTHING)}
        options["response_model"] = model
        options["openapi_extra"] = extra or None
        if model is not None:
            # A status beside the usual one, such as that of a replay, has the same body.
            replies = options["responses"].items()
            options["responses"] = {
                code: each if code == status else {**each, "model": model} for code, each in replies
            }
        super().__init__(path, _answering(endpoint, signature, status), **options)


def find_body_model(parameter: inspect.Parameter) -> type[Value] | None:
    annotation = parameter.annotation
    if isinstance(annotation, type) and issubclass(annotation, Value):
        return annotation
    return next((mark.model for mark in get_args(annotation) if isinstance(mark, BodyOf)), None)


def find_answer_model(annotation: Any) -> Any:
    """Returns the documented model of an endpoint with this return annotation; None where it documents none."""
    if get_origin(annotation) in (Union, UnionType):
        [annotation] = [each for each in get_args(annotation) if not _is_response(each)]
    if get_origin(annotation) is Answer:
        [annotation] = get_args(annotation)
    return None if annotation is None or _is_response(annotation) else annotation


def build_response(result: Any, status: int) -> Response:
    if isinstance(result, Response):
        return result
    if result is None:
        return Response(status_code=status)
    answer: Answer[Any] = result if isinstance(result, Answer) else Answer(result)
    content = encode_json(answer.body.to_json()) if answer.content is None else answer.content
    if isinstance(answer.body.data, tuple):
        # One of 500 units may have many MiB.
        hold(len(content))
    return Response(content, answer.status or status, dict(answer.headers), JSON)


def _answering(endpoint: Endpoint, signature: inspect.Signature, status: int) -> Endpoint:
    async def respond(**arguments: Any) -> Response:
        return build_response(await endpoint(**arguments), status)

    update_wrapper(respond, endpoint)
    parameters = [_with_decoder(each) for each in signature.parameters.values()]
    vars(respond)["__signature__"] = signature.replace(parameters=parameters)
    return respond


def _with_decoder(parameter: inspect.Parameter) -> inspect.Parameter:
    model = find_body_model(parameter)
    if model is None or parameter.annotation is not model:
        return parameter
    unsaid = None if parameter.default is NOTHING else parameter.default
    return parameter.replace(annotation=Annotated[model, Depends(decoded(model, unsaid=unsaid))])


def _describe_body(model: type[Value], *, is_required: bool) -> dict[str, Any]:
    reference = {"$ref": REF_TEMPLATE.format(model=model.__name__)}
    return {"required": is_required, "content": {JSON: {"schema": reference}}}


def _is_response(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, Response)
