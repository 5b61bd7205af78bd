"""The OpenAPI document of the API, made from the table of questions and from the types of the answers."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from arranger import __version__
from arranger.replay.console.gantt import Gantt
from arranger.replay.console.job_page import JobPage
from arranger.replay.console.moment import Moment, Standings
from arranger.replay.console.node_gantt import NodeGantt
from arranger.replay.console.series import Series
from arranger.replay.console.timeline import Decision, Timeline
from arranger.replay.explain.answer import Explanation
from arranger.replay.forecast.starts import JobStarts
from arranger.replay.ledger.preemptions import PreemptionList
from arranger.replay.ledger.waits import WaitSums
from arranger.replay.reading.difference import Difference
from arranger.replay.reading.listing import ListedEvent
from arranger.replay.reading.overview import Overview
from arranger.replay.reading.queues import QueueDetail, QueueHoldings, QueueList
from arranger.replay.reading.verify import Report
from arranger.replay.what_if.comparison import WhatIf
from arranger.web.console_questions import CONSOLE
from arranger.web.log_copies import MEDIA_TYPE
from arranger.web.naming import LINES_TYPE, MANIFESTS_TYPE, PREFIX, camel
from arranger.web.questions import QUESTIONS, Parameter, Question
from arranger.web.refusals import CODES, RefusalBody
from arranger.workers.health.status import Status

_Schemas = dict[type, dict[str, Any]]
_REF = "#/components/schemas/{name}"

#: Question → the types of its answer, or of its elements.
_TYPES: dict[str, tuple[type, ...]] = {
    "status": (Status,),
    "replay": (Overview,),
    "explain": (Explanation,),
    "verify": (Report,),
    "diff": (Difference,),
    "events": (ListedEvent,),
    "what-if": (WhatIf,),
    "waits": (WaitSums,),
    "forecast": (JobStarts,),
    "preemptions": (PreemptionList,),
    "queue": (QueueList, QueueDetail),
    "top": (QueueHoldings,),
    "moment": (Moment,),
    "standings": (Standings,),
    "timeline": (Timeline,),
    "series": (Series,),
    "gantt": (Gantt,),
    "node-gantt": (NodeGantt,),
    "decision": (Decision,),
    "job": (JobPage,),
}


def document() -> dict[str, Any]:
    """The document as JSON. Answers may have further fields beside those of their types."""
    types = [*(one for types in _TYPES.values() for one in types), RefusalBody]
    # Of two types with one name, both get longer ones: so each schema says where it is.
    found, components = msgspec.json.schema_components(types, ref_template=_REF)
    schemas = dict(zip(types, found, strict=True))
    arrays = _arrays(types)
    refusals = _refusals(schemas[RefusalBody])
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Arranger",
            "version": __version__,
            "description": "What Arranger's log says, for reading only. Times are in milliseconds since 1970, "
            "those of the console's questions (moment, standings, timeline, series, gantt, node-gantt, decision, job) "
            "in seconds.",
        },
        "paths": {
            **{
                f"{PREFIX}/{one.name}": {
                    "get": {**_operation(one), "responses": {**_success(one, schemas), **refusals}},
                    **({"post": _with_manifests(one, schemas, refusals)} if one.manifests else {}),
                }
                for one in (*QUESTIONS.values(), *CONSOLE.values())
            },
            **{
                f"{PREFIX}/log/{name}": {"get": {**_log(name), **_COPY, "responses": {**_PART, **refusals}}}
                for name in PARTS
            },
            f"{PREFIX}/live": {"get": {**_LIVE, "responses": {**_STREAM, **refusals}}},
        },
        "components": {"schemas": {name: _renamed(_as_object(schema, arrays)) for name, schema in components.items()}},
    }


def _operation(question: Question) -> dict[str, Any]:
    return {
        "operationId": camel(question.name.replace("-", "_")),
        "summary": question.summary,
        "parameters": [_parameter(one) for one in question.parameters],
    }


def _with_manifests(question: Question, schemas: _Schemas, refusals: dict[str, Any]) -> dict[str, Any]:
    operation = _operation(question)
    body = {"description": "Kubernetes objects to add or change.", "required": True, "content": {MANIFESTS_TYPE: {}}}
    answer = {"200": {"description": "The answer.", "content": _content(question, schemas)}}
    named = {"operationId": f"{operation['operationId']}WithObjects", "requestBody": body}
    return {**operation, **named, "responses": {**answer, **refusals}}


def _content(question: Question, schemas: _Schemas) -> dict[str, Any]:
    lines = {"schema": {"type": "string", "description": "Lines of JSON, as the command prints them."}}
    return {
        "application/json": {"schema": _schema(question, schemas)},
        **({LINES_TYPE: lines} if question.lines else {}),
    }


def _success(question: Question, schemas: _Schemas) -> dict[str, Any]:
    return {
        "200": {
            "description": "The answer. Its ETag names the epoch and the offset up to which it depends on the log.",
            "content": _content(question, schemas),
        },
        "304": {"description": "The client has this answer: If-None-Match."},
    }


def _parameter(one: Parameter) -> dict[str, Any]:
    text: dict[str, Any] = {"type": "boolean" if one.switch else "integer" if one.most else "string"}
    schema = {"type": "array", "items": text} if one.many else text
    return {"name": one.name, "in": "query", "required": one.required, "description": one.meaning, "schema": schema}


def _schema(question: Question, schemas: _Schemas) -> dict[str, Any]:
    types = [schemas[one] for one in _TYPES[question.name]]
    answer = types[0] if len(types) == 1 else {"anyOf": types}
    return {"type": "array", "items": answer} if question.lines else answer


def _refusals(schema: dict[str, Any]) -> dict[str, Any]:
    body = {"application/json": {"schema": schema}}
    return {str(code): {"description": reason, "content": body} for reason, code in CODES.items()}


_LIVE = {
    "operationId": "live",
    "summary": "New events as server-sent events. The id EPOCH-OFFSET, sent back as Last-Event-ID, goes on after it.",
}
#: Part of the log → the parameters of its path, and what it is.
PARTS = {
    "open": ((), "The end of the log, opened again if another epoch has begun"),
    "start": ((), "The position before the oldest entry"),
    "end": ((), "The position after the last entry"),
    "entries": (("epoch", "offset", "chain", "limit", "wait"), "Entries after a position, as they are stored"),
    "marks": ((), "The offsets of the snapshots"),
    "snapshot": (("atMost",), "The newest snapshot, or the newest up to an offset"),
}
_PART = {
    "200": {
        "description": "A part of the log, or the problem that reading it met, as MessagePack.",
        "content": {MEDIA_TYPE: {"schema": {"type": "string", "contentMediaType": MEDIA_TYPE}}},
    }
}
_COPY = {"description": "For arranger's own commands: --server. It needs the rights to see everything in the log."}


def _log(name: str) -> dict[str, Any]:
    parameters, summary = PARTS[name]
    told = [
        {"name": one, "in": "query", "schema": {"type": "string" if one == "chain" else "integer"}}
        for one in parameters
    ]
    return {"operationId": f"log{name.capitalize()}", "summary": f"{summary}.", "parameters": told}


_STREAM = {"200": {"description": "A stream that doesn't end.", "content": {"text/event-stream": {}}}}


def _arrays(types: Sequence[type]) -> dict[str, type]:
    """The types among the parts of these that the log stores as arrays, by title. In answers they are objects."""
    found: dict[str, type] = {}
    seen, rest = [], [*msgspec.inspect.multi_type_info(types)]
    while rest:
        one = rest.pop()
        if isinstance(one, msgspec.inspect.StructType):
            if one.cls in seen:
                continue
            seen.append(one.cls)
            if one.array_like:
                found[one.cls.__name__] = one.cls
            rest += [field.type for field in one.fields]
        else:
            parts = [getattr(one, name, None) for name in ("type", "item_type", "key_type", "value_type")]
            rest += [part for part in parts if isinstance(part, msgspec.inspect.Type)]
            rest += [*getattr(one, "types", ()), *getattr(one, "item_types", ())]
    return found


def _as_object(schema: dict[str, Any], arrays: Mapping[str, type]) -> dict[str, Any]:
    """The schema of an object in place of that of an array."""
    of = arrays.get(schema.get("title", ""))
    if of is None or "prefixItems" not in schema:
        return schema
    names = of.__struct_fields__  # type: ignore[attr-defined]
    values = schema["prefixItems"][-len(names) :] if names else []  # a tag stands before them
    kept: dict[str, Any] = {key: schema[key] for key in ("title", "description") if key in schema}
    return {**kept, "type": "object", "properties": dict(zip(names, values, strict=True)), "required": [*names]}


def _renamed(schema: dict[str, Any]) -> dict[str, Any]:
    """A type's schema with the API's names of its fields."""
    changed = dict(schema)
    if "properties" in schema:
        changed["properties"] = {camel(name): of for name, of in schema["properties"].items()}
    if "required" in schema:
        changed["required"] = [camel(name) for name in schema["required"]]
    return changed
