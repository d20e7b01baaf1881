"""A key that a provider hands back in every field, header and error is in no table of a shared
store, and reaches no server of tools."""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from conftest import Cli
from crew import prepare, train
from scripted import Reply, ScriptedEndpoint, completion, restless, stage
from test_agent import called
from test_secrets import KEY, poisoned

from tfgrpo.store import Store
from tfgrpo.store.address import parse_address
from tfgrpo.store.text_occurrences import matcher

HEADERS = {
    **dict.fromkeys(("x-request-id", "server-timing", "set-cookie", "warning"), f"a {KEY}"),
    "retry-after-ms": "1",
}
STATUSES = (500, 429)


def failure(status: int) -> Reply:
    error = {"message": f"no {KEY} here", "type": KEY, "code": KEY, "param": KEY, KEY: KEY}
    return Reply({"error": error, KEY: KEY, "detail": [KEY]}, status, HEADERS)


def told(request: dict[str, Any]) -> Reply:
    """An answer of use, with the key in all that it says."""
    text = restless(request).replace("check part", f"check {KEY} part")
    if stage(request) in ("rollout", "summary"):
        text = f"{KEY} {text}"
    body = completion(text) | {"system_fingerprint": KEY, "service_tier": KEY, KEY: KEY}
    message = poisoned({"role": "assistant", "refusal": "no", "reasoning_content": "so"})
    body["choices"][0]["message"] = message | {"content": text}
    body["choices"][0]["logprobs"] = {"content": [{"token": KEY, "top_logprobs": [{KEY: KEY}]}]}
    return Reply(body, headers=HEADERS)


def places(address: str) -> Iterator[tuple[str, int]]:
    """Yields each column of text or bytes in the schemas of a store and its queue, with the number
    of rows that hold the key."""
    import psycopg
    from psycopg import sql

    where = parse_address(address)
    query = """
        select table_schema, table_name, column_name, data_type from information_schema.columns
         where starts_with(table_schema, %s)
    """
    with psycopg.connect(where.conninfo) as connection:
        for schema, table, column, kind in connection.execute(query, [where.schema]).fetchall():
            text = sql.SQL("convert_to({}::text, 'UTF8')").format(sql.Identifier(column))
            bytes_ = sql.Identifier(column) if kind == "bytea" else text
            counted = sql.SQL("select count(*) from {} where position(%s in {}) > 0").format(
                sql.Identifier(schema, table), bytes_
            )
            [[rows]] = connection.execute(counted, [KEY.encode()]).fetchall()
            yield f"{schema}.{table}.{column}", rows


@pytest.mark.postgres
def test_no_column_of_a_shared_store_or_its_queue_holds_the_key(
    tmp_path: Path, shared: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TFGRPO_API_KEY", KEY)
    numbers = count(1)

    def script(request: dict[str, Any]) -> Reply:
        number = next(numbers)
        return failure(STATUSES[number // 5 % 2]) if number % 5 == 0 else told(request)

    with ScriptedEndpoint(script) as server:
        prepare(tmp_path, shared, server.base_url)
        train(tmp_path, shared, 2)
        assert server.keys[0] == f"Bearer {KEY}"
        assert KEY not in json.dumps(server.requests)
    columns = dict(places(shared))
    assert len({name.rpartition(".")[0] for name in columns}) > 15
    assert {name: rows for name, rows in columns.items() if rows} == {}
    with Store.open(shared) as store:  # which also sees into what is packed
        pattern = matcher([KEY])
        assert store.port.redactions.occurrences(pattern) == []
        assert store.port.redactions.events_holding(pattern) == []
        hidden = {one.column for one in store.port.redactions.occurrences(matcher(["***"]))}
        assert hidden >= {"answer", "text"}, "the key was there, and was taken out"
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert [path for path in files if KEY.encode() in path.read_bytes()] == []


LOGGING = """
import json, os, sys
log = open({log!r}, "a")
print(json.dumps(dict(os.environ)), sys.argv, file=log, flush=True)
tool = {{"name": "look", "description": "Looks.", "inputSchema": {{"type": "object"}}}}
for line in sys.stdin:
    log.write(line)
    log.flush()
    asked = json.loads(line)
    answer = {{"jsonrpc": "2.0", "id": asked.get("id")}}
    if asked["method"] == "initialize":
        about = {{"capabilities": {{"tools": {{}}}}, "serverInfo": {{"name": "x", "version": "1"}}}}
        version = asked["params"]["protocolVersion"]
        answer["result"] = {{"protocolVersion": version, **about}}
    elif asked["method"] == "tools/list":
        answer["result"] = {{"tools": [tool]}}
    elif asked["method"] == "tools/call":
        answer["result"] = {{"content": [{{"type": "text", "text": "It is there."}}]}}
    else:
        answer["error"] = {{"code": -32601, "message": "there is none"}}
    if asked.get("id") is not None:
        print(json.dumps(answer), flush=True)
"""


def test_no_server_of_tools_receives_a_key_in_words_or_variables(cli: Cli, tmp_path: Path) -> None:
    pytest.importorskip("mcp")
    names = ("TFGRPO_API_KEY", "OPENAI_API_KEY", "AWS_SECRET_ACCESS_KEY", "SOME_NAME")
    log = tmp_path.parent / f"{tmp_path.name}-log"
    (tmp_path / "server.py").write_text(LOGGING.format(log=str(log)))
    server_line = f'command = "{sys.executable}"\nargs = ["server.py"]\n'
    tools = f"[tools]\nuse = []\n[tools.mcp.x]\n{server_line}"
    (tmp_path / "tfgrpo.toml").write_text(f'[eval]\nmode = "agent"\n{tools}')
    (tmp_path / "p.jsonl").write_text('{"problem": "What is 1 op 3?", "answer": 5}\n')

    def script(request: dict[str, Any]) -> Reply:
        if request["messages"][-1]["role"] == "tool":
            return Reply(completion(f"{KEY} \\boxed{{5}}"))
        reply = called("x_look", {"at": f"the {KEY}", KEY: [KEY]}, id=KEY)
        return Reply(reply.body, headers=HEADERS)

    with ScriptedEndpoint(script) as server:
        cli("init")
        given = ("--model", "m", "--base-url", server.base_url, "--samples", "1")
        cli("eval", "p.jsonl", *given, env=dict.fromkeys(names, KEY))
        assert server.keys[0] == f"Bearer {KEY}"
    seen = log.read_text()
    assert '"tools/call"' in seen
    assert "the ***" in seen
    assert KEY not in seen


@pytest.mark.postgres
@pytest.mark.parametrize("status", [400, 401, 404])
def test_what_ends_a_run_is_told_without_the_key(
    status: int, tmp_path: Path, shared: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By workers to their driver over the queue too."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TFGRPO_API_KEY", KEY)
    with ScriptedEndpoint(lambda request: failure(status)) as server:
        prepare(tmp_path, shared, server.base_url)
        with pytest.raises(BaseExceptionGroup) as raised:
            train(tmp_path, shared, 2)
    told = "".join(traceback.format_exception(raised.value))
    assert str(status) in told
    assert KEY not in told
    assert {name: rows for name, rows in places(shared) if rows} == {}
