"""Render the OpenAPI document as a page for people.

The page needs no script and no external resources, so it works with the strictest Content-Security-Policy. All text is
escaped, because even the base URL comes from a request.
"""

import json
import shlex
from collections.abc import Iterable, Iterator
from functools import cache
from html import escape
from importlib.resources import files
from typing import Any

from markdown_it import MarkdownIt

Json = dict[str, Any]

_REFS = "#/components/schemas/"
_METHODS = ("get", "post", "patch", "delete")
_MARKDOWN = MarkdownIt("commonmark", {"html": False}).disable(["image"])


def api_style() -> str:
    return files("cursor_gateway.server").joinpath("docs.css").read_text(encoding="utf-8")


def api_page(document: Json, base_url: str) -> str:
    """`base_url` is the URL under which the reader reached the gateway, without a trailing slash."""
    info = document["info"]
    return _PAGE.format(
        title=escape(info["title"]),
        version=escape(info["version"]),
        summary=escape(info["summary"]),
        navigation=_navigation(document),
        about=_MARKDOWN.render(info["description"]),
        start=_start(document, base_url),
        endpoints=_endpoints(document),
        groups="".join(_group(document, tag, base_url) for tag in document["tags"]),
        schemas="".join(_schema(name, schema) for name, schema in document["components"]["schemas"].items()),
    )


_PAGE = """\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{title} API</title>
<link rel="stylesheet" href="docs.css">
</head>
<body>
<a class="skip" href="#content">Skip to content</a>
<nav aria-label="On this page">
<p class="brand"><a href="#top">{title}</a></p>
{navigation}
</nav>
<main id="content">
<header id="top">
<h1>{title} <small>{version}</small></h1>
<p class="lead">{summary}</p>
</header>
{about}
<section aria-labelledby="start">
<h2 id="start">Getting started</h2>
{start}
</section>
<section aria-labelledby="endpoints">
<h2 id="endpoints">Endpoints</h2>
{endpoints}
<p>Machine-readable: <a href="openapi.json">openapi.json</a>.</p>
</section>
{groups}
<section aria-labelledby="schemas">
<h2 id="schemas">Schemas</h2>
{schemas}
</section>
</main>
</body>
</html>
"""


# --- the whole ------------------------------------------------------------------------------------------


def _operations(document: Json) -> Iterator[tuple[str, str, Json]]:
    for path, item in document["paths"].items():
        for method in _METHODS:
            if method in item:
                yield method, path, item[method]


def _navigation(document: Json) -> str:
    parts = ['<ul><li><a href="#start">Getting started</a></li><li><a href="#endpoints">Endpoints</a></li></ul>']
    for tag in document["tags"]:
        links = "".join(
            f'<li><a href="#{escape(operation["operationId"])}">{escape(operation["summary"])}</a></li>'
            for _, _, operation in _operations(document)
            if tag["name"] in operation["tags"]
        )
        parts.append(f'<p><a href="#{_tag_id(tag)}">{escape(tag["name"])}</a></p><ul>{links}</ul>')
    return "".join([*parts, '<p><a href="#schemas">Schemas</a></p>'])


def _tag_id(tag: Json) -> str:
    return escape(f"tag-{tag['name'].lower()}")


def _start(document: Json, base_url: str) -> str:
    post = {path: operation for method, path, operation in _operations(document) if method == "post"}
    shown = [
        ("An answer as documents", _block(_curl("post", "/v1/chat", post["/v1/chat"], base_url))),
        ("A streamed answer", _block(_curl("post", "/v1/chat", post["/v1/chat"], base_url, "stream"))),
        (
            "With the `openai` package, or any other OpenAI client",
            _indented_block(_PYTHON.format(json.dumps(f"{base_url}/v1"))),
        ),
    ]
    parts = [f"<p>Base URL: {_code(base_url)}. OpenAI clients use {_code(f'{base_url}/v1')}.</p>"]
    parts += [f"<h3>{_inline(what)}</h3>{how}" for what, how in shown]
    note = (
        "If the gateway has API keys, add `-H 'Authorization: Bearer KEY'`, or pass the key as `api_key`. Otherwise, "
        "any `api_key` works."
    )
    return "".join([*parts, f"<p>{_inline(note)}</p>"])


_PYTHON = """\
from openai import OpenAI

client = OpenAI(base_url={}, api_key="none")
stream = client.chat.completions.create(
    model="auto",
    messages=[{{"role": "user", "content": "What does this project do?"}}],
    stream=True,
)
for chunk in stream:
    if chunk.choices:
        print(chunk.choices[0].delta.content or "", end="", flush=True)
"""


def _endpoints(document: Json) -> str:
    rows = [
        (
            f'<a class="endpoint" href="#{escape(operation["operationId"])}">{_method(method)} {_path(path)}</a>',
            escape(operation["summary"]),
        )
        for method, path, operation in _operations(document)
    ]
    return _table(("Endpoint", "Description"), rows)


def _group(document: Json, tag: Json, base_url: str) -> str:
    operations = [
        _operation(document, method, path, operation, base_url)
        for method, path, operation in _operations(document)
        if tag["name"] in operation["tags"]
    ]
    id = _tag_id(tag)
    return (
        f'<section aria-labelledby="{id}"><h2 id="{id}">{escape(tag["name"])}</h2>'
        f"<p>{_inline(tag['description'])}</p>{''.join(operations)}</section>"
    )


# --- an operation ---------------------------------------------------------------------------------------


def _operation(document: Json, method: str, path: str, operation: Json, base_url: str) -> str:
    id = escape(operation["operationId"])
    parts = [
        f'<article aria-labelledby="{id}"><h3 id="{id}">{escape(operation["summary"])}</h3>',
        f'<p class="endpoint">{_method(method)} {_path(path)}{_openness(operation)}</p>',
        f"<p>{_inline(operation['description'])}</p>",
        _block(_curl(method, path, operation, base_url)),
        _parameters(document, operation),
        _request(document, operation),
        _replies(document, operation),
        _errors(operation),
        "</article>",
    ]
    return "".join(parts)


def _openness(operation: Json) -> str:
    return ' <span class="note">no key required</span>' if operation.get("security") == [] else ""


def _parameters(document: Json, operation: Json) -> str:
    fields = []
    for given in operation["parameters"]:
        parameter = _resolved(document, given)
        note = "required" if parameter.get("required") else parameter["in"]
        fields.append(_field(parameter["name"], _type(parameter["schema"]), note, parameter["description"]))
    return f"<h4>Parameters</h4>{_fields(fields)}" if fields else ""


def _request(document: Json, operation: Json) -> str:
    if "requestBody" not in operation:
        return ""
    ((media_type, content),) = operation["requestBody"]["content"].items()
    schema = _resolved(document, content["schema"])
    examples = "".join(
        _details(f"Example: {escape(example['summary'])}", _block(_pretty(example["value"])))
        for example in content.get("examples", {}).values()
    )
    about = f"<p>{_inline(schema['description'])}</p>" if "description" in schema else ""
    return f"<h4>Request {_code(media_type)}</h4>{about}{_properties(schema)}{examples}"


def _replies(document: Json, operation: Json) -> str:
    good = {status: reply for status, reply in operation["responses"].items() if status.startswith("2")}
    return "".join(_reply(document, status, reply) for status, reply in good.items())


def _reply(document: Json, status: str, reply: Json) -> str:
    parts = [f"<h4>Response {_code(status)}</h4><p>{_inline(reply['description'])}</p>"]
    for media_type, content in reply.get("content", {}).items():
        about = (
            _inline(content["x-itemSchema"]["description"]) if "x-itemSchema" in content else _type(content["schema"])
        )
        parts.append(f"<p>{_code(media_type)}: {about}</p>")
        if "example" in content:
            example = content["example"]
            text = example if isinstance(example, str) else _pretty(example)
            parts.append(_details(f"Example of {escape(media_type)}", _block(text)))
    headers = [
        _field(name, "", "header", _resolved(document, header)["description"])
        for name, header in reply["headers"].items()
    ]
    return "".join([*parts, _details("Headers", _fields(headers))])


def _errors(operation: Json) -> str:
    responses = {status: reply for status, reply in operation["responses"].items() if not status.startswith("2")}
    rows = []
    for status, reply in responses.items():
        examples = reply["content"].get("application/json", {}).get("examples", {})
        rows += [(_code(status), _code(code), _inline(example["summary"])) for code, example in examples.items()]
        if not examples:  # a page for people
            rows.append((_code(status), "", _inline(reply["description"])))
    return f"<h4>Errors</h4>{_details(', '.join(responses), _table(('Status', 'Code', 'Meaning'), rows))}"


def _curl(method: str, path: str, operation: Json, base_url: str, example: str = "") -> str:
    """A command that works when it is pasted into a shell."""
    for parameter in operation["parameters"]:
        if parameter.get("in") == "path":
            path = path.replace(f"{{{parameter['name']}}}", parameter["example"])
    url = shlex.quote(f"{base_url}{path}")
    if "requestBody" not in operation:
        return f"curl {url}" if method == "get" else f"curl -X {method.upper()} {url}"
    ((media_type, content),) = operation["requestBody"]["content"].items()
    examples = content.get("examples") or {"": {"value": content["example"]}}
    value = examples[example or next(iter(examples))]["value"]
    unbuffered = " -N" if value.get("stream") else ""
    body = shlex.quote(json.dumps(value, ensure_ascii=False))
    sent = "" if method == "post" else f" -X {method.upper()}"
    return f"curl{unbuffered}{sent} {url} \\\n  -H 'Content-Type: {media_type}' \\\n  -d {body}"


# --- schemas --------------------------------------------------------------------------------------------


def _schema(name: str, schema: Json) -> str:
    # The id is inside: a browser that follows a link to it opens the details.
    return _details(
        f"{_code(name)} <span>{_inline(schema['description'])}</span>",
        f'<div class="schema" id="schema-{escape(name)}">{_properties(schema)}</div>',
    )


def _properties(schema: Json) -> str:
    if not schema.get("properties"):
        return f"<p>{_type(schema)}</p>"
    required = schema.get("required", ())
    return _fields(
        _field(name, _type(its), "required" if name in required else "", its.get("description", ""))
        for name, its in schema["properties"].items()
    )


def _type(schema: Json) -> str:
    """In words, with links."""
    match schema:
        case {"$ref": str(ref)}:
            name = escape(ref.removeprefix(_REFS))
            return f'<a href="#schema-{name}">{name}</a>'
        case {"anyOf": _} | {"oneOf": _} | {"enum": _} | {"const": _}:
            return _listed(list(_alternatives(schema)), "or")
        case {"allOf": list(members)}:
            return _listed([_type(member) for member in members], "and")
        case {"type": "array", "items": dict(items)}:
            return f"list of {_type(items)}"
        case {"type": str(name)}:
            return escape(name)
        case _:
            return "any value"


def _alternatives(schema: Json) -> Iterator[str]:
    match schema:
        case {"anyOf": list(members)} | {"oneOf": list(members)}:
            for member in members:
                yield from _alternatives(member)
        case {"enum": list(values)}:
            yield from (_code(json.dumps(value)) for value in values)
        case {"const": value}:
            yield _code(json.dumps(value))
        case _:
            yield _type(schema)


def _listed(words: list[str], last: str) -> str:
    return f"{', '.join(words[:-1])} {last} {words[-1]}" if len(words) > 1 else words[0]


def _resolved(document: Json, value: Json) -> Json:
    if "$ref" not in value:
        return value
    found = document
    for part in value["$ref"].removeprefix("#/").split("/"):
        found = found[part]
    return found


# --- pieces of HTML -------------------------------------------------------------------------------------


@cache
def _inline(text: str) -> str:
    return str(_MARKDOWN.renderInline(text))


def _code(text: str) -> str:
    return f"<code>{escape(text)}</code>"


def _block(text: str) -> str:
    return f"<pre><code>{escape(text.rstrip())}</code></pre>"


def _indented_block(text: str) -> str:
    """Its lines are not broken, it scrolls sideways; so the keyboard must be able to reach it."""
    return f'<pre class="indented" tabindex="0"><code>{escape(text.rstrip())}</code></pre>'


def _details(summary: str, content: str) -> str:
    return f"<details><summary>{summary}</summary>{content}</details>"


def _pretty(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False)


def _method(method: str) -> str:
    return f'<span class="method {escape(method)}">{escape(method.upper())}</span>'


def _path(path: str) -> str:
    return f"<code>{escape(path).replace('/', '/<wbr>')}</code>"  # may be longer than a phone is wide


def _field(name: str, type: str, note: str, meaning: str) -> str:
    noted = f' <span class="note {escape(note)}">{escape(note)}</span>' if note else ""
    typed = f' <span class="type">{type}</span>' if type else ""
    return f"<div><dt>{_code(name)}{noted}{typed}</dt><dd>{_inline(meaning)}</dd></div>"


def _fields(fields: Iterable[str]) -> str:
    return f'<dl class="fields">{"".join(fields)}</dl>'


def _table(heads: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    head = "".join(f'<th scope="col">{escape(cell)}</th>' for cell in heads)
    body = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
