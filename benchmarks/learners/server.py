"""A server of one local model for the race: many answers at once on a processor.

    python3 -m venv ~/server && ~/server/bin/pip install openvino-genai
    ~/server/bin/python benchmarks/learners/server.py MODEL.gguf --name qwen2.5-coder-1.5b
    python -m benchmarks.learners.race cell … --base-url http://127.0.0.1:8090/v1 --local

Learners that ask dozens of calls at a time wait less where the answers of all are written
together. OpenVINO GenAI does that with the weights that `tfgrpo model get` fetches, and writes
several times as many tokens a second as a server of few slots, where the processor multiplies
matrices (AMX) or has AVX-512. With `--eight-bit FOLDER` the matrices are rounded to eight bits
first, a scale for each row, which such processors multiply twice as fast as the four bits of the
file; the folder keeps them for the next time. With `--answers FILE` a request that was made before
gets the answer that it had: cells that differ in one option share what they ask alike, which
saves time and leaves less to chance between them. It is imported from nothing here: it runs in an
environment of its own, speaks the chat completions of OpenAI's protocol with JSON schemas, seeds
and cached tokens, and listens on this machine alone.
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import json
import multiprocessing
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy

TOP_K, TOP_P, MIN_P = 40, 0.95, 0.05
"""As llama.cpp samples where a request does not say."""
REMEMBERED = 150
"""Prompts that a new one is likened to, for the tokens that need not be read again."""
BLOCK = 32
"""Tokens that the engine keeps together: what is less is not worth waiting for."""
STALL = 600.0
MODEL = "openvino_model.xml"
STEP_TOKENS = 48
"""Of all requests, in one step: a long prompt does not hold up the answers beside it."""
ROUNDED_TOGETHER = 128
"""Values of an activation that share a scale, where the matrices have eight bits."""
Message = tuple[int, dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Served:
    """What is served: a GGUF file, how many answers at once, the GB of memory for prompts, and
    the folder of its eight-bit form where that is wanted."""

    weights: str
    slots: int
    cache: int
    eight_bit: str | None


def generate(pipe: Connection, served: Served) -> None:
    """Answers what comes through a pipe, in a process of its own: the engine and the server would
    wait for each other's lock."""
    import openvino_genai as genai

    engine = _engine(genai, served)
    tokenizer = engine.get_tokenizer()
    earlier: deque[list[int]] = deque(maxlen=REMEMBERED)
    waiting: dict[int, tuple[Any, list[int], Any]] = {}
    reading: dict[int, list[int]] = {}
    handles: dict[int, tuple[Any, int, int]] = {}
    pipe.send((-1, {}))
    while True:
        while pipe.poll(0 if handles or waiting else None):
            number, asked = pipe.recv()
            try:
                text = tokenizer.apply_chat_template(asked["messages"], add_generation_prompt=True)
                ids = tokenizer.encode(text, add_special_tokens=False).input_ids
                how = _configuration(genai, asked, tokenizer)
                waiting[number] = (ids, ids.data.flatten().tolist(), how)
            except Exception as error:  # whatever it is, the one who asked is told
                pipe.send((number, {"error": f"{type(error).__name__}: {error}"}))
        for number, (ids, listed, how) in list(waiting.items()):
            cached = _longest_shared(listed, earlier)
            if _longest_shared(listed, reading.values()) >= cached + BLOCK:
                continue  # what it shares with another prompt is read once, by that one
            del waiting[number]
            handles[number] = (engine.add_request(number, ids, how), len(listed), cached)
            reading[number] = listed
        if handles:
            engine.step()
        for number, (handle, length, cached) in list(handles.items()):
            if number in reading and handle.can_read():
                earlier.append(reading.pop(number))
            if handle.get_status() == genai.GenerationStatus.RUNNING:
                continue
            del handles[number]
            reading.pop(number, None)
            (output,) = handle.read_all() or (None,)
            if output is None:
                pipe.send((number, {"error": "the engine gave no answer"}))
                continue
            written = list(output.generated_ids)
            long = output.finish_reason == genai.GenerationFinishReason.LENGTH
            usage = {
                "prompt_tokens": length,
                "completion_tokens": len(written),
                "total_tokens": length + len(written),
                "prompt_tokens_details": {"cached_tokens": min(cached, length - 1)},
            }
            answer = {"text": tokenizer.decode(written), "usage": usage}
            pipe.send((number, {**answer, "ended": "length" if long else "stop"}))


def _engine(genai: Any, served: Served) -> Any:
    scheduler = genai.SchedulerConfig()
    scheduler.cache_size, scheduler.max_num_seqs = served.cache, served.slots
    scheduler.max_num_batched_tokens = STEP_TOKENS
    scheduler.enable_prefix_caching = True
    if served.eight_bit is None:
        return genai.ContinuousBatchingPipeline(served.weights, scheduler, "CPU")
    folder = Path(served.eight_bit)
    if not (folder / MODEL).exists():
        folder.mkdir(parents=True, exist_ok=True)
        convert(genai, served.weights, folder)
    tokenizer = genai.Tokenizer(served.weights)
    options = {"DYNAMIC_QUANTIZATION_GROUP_SIZE": ROUNDED_TOGETHER}
    return genai.ContinuousBatchingPipeline(str(folder), tokenizer, scheduler, "CPU", **options)


def convert(genai: Any, weights: str, folder: Path) -> None:
    """Writes a model of a GGUF file with eight bits a weight; needs memory for the largest matrix
    in 32 bits."""
    import openvino
    from openvino import opset13 as operators

    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        linked = Path(scratch) / "model.gguf"
        linked.symlink_to(Path(weights).absolute())
        scheduler = genai.SchedulerConfig()
        scheduler.cache_size = 1
        genai.ContinuousBatchingPipeline(
            str(linked), scheduler, "CPU", {"enable_save_ov_model": True}
        )
        model = openvino.Core().read_model(Path(scratch) / MODEL)
        for node in model.get_ordered_ops():
            if node.get_type_name() != "MatMul":
                continue
            matrix = _constant(node.input(1).get_source_output().get_node())
            if matrix is None:  # it multiplies with what is calculated
                continue
            matrix = matrix.reshape(matrix.shape[-2:])
            scale = numpy.abs(matrix).max(1, keepdims=True) / 127
            scale = numpy.maximum(scale, 1e-7).astype(numpy.float16)
            rounded = numpy.rint(matrix / scale.astype(numpy.float32)).clip(-127, 127)
            small = operators.convert(operators.constant(rounded.astype(numpy.int8)), "f16")
            scaled = operators.multiply(small, operators.constant(scale))
            whole = operators.convert(scaled, "f32")
            node.input(1).replace_source_output(whole.output(0))
        partial = Path(scratch) / "eight"
        openvino.save_model(model, partial / MODEL, compress_to_fp16=False)
        for name in (Path(MODEL).with_suffix(".bin").name, MODEL):
            (partial / name).rename(folder / name)


def _constant(node: Any) -> Any:
    """Returns the values of a matrix that a file holds in few bits; None where it is calculated
    while the model answers."""
    kind = node.get_type_name()
    if kind == "Constant":
        return node.get_data(dtype=numpy.float32)
    if kind not in UNPACKED:
        return None
    parts = [_constant(one.get_source_output().get_node()) for one in node.inputs()]
    if any(part is None for part in parts):
        return None
    if kind == "Reshape":
        return parts[0].reshape(tuple(node.get_output_shape(0)))
    return UNPACKED[kind](*parts)


UNPACKED: dict[str, Callable[..., Any]] = {
    "Convert": lambda value: value,
    "Subtract": lambda value, zero: value - zero,
    "Multiply": lambda value, scale: value * scale,
    "Reshape": lambda value, shape: value,
}
"""How a file's matrices become numbers, by the names of OpenVINO's operations."""


def _configuration(genai: Any, asked: dict[str, Any], tokenizer: Any) -> Any:
    """Returns how a request is answered."""
    how = genai.GenerationConfig()
    how.set_eos_token_id(tokenizer.get_eos_token_id())
    how.max_new_tokens = asked.get("max_completion_tokens") or asked.get("max_tokens") or 1024
    temperature = asked.get("temperature", 1.0)
    how.do_sample = temperature > 0
    if how.do_sample:
        how.temperature, how.top_k, how.min_p = temperature, TOP_K, MIN_P
        how.top_p = asked.get("top_p", TOP_P)
        how.rng_seed = asked.get("seed") or 0
    if stop := asked.get("stop"):
        how.stop_strings = {stop} if isinstance(stop, str) else set(stop)
    shape = (asked.get("response_format") or {}).get("json_schema")
    if shape:
        schema = json.dumps(shape["schema"])
        how.structured_output_config = genai.StructuredOutputConfig(json_schema=schema)
    return how


def _longest_shared(prompt: Sequence[int], others: Iterable[Sequence[int]]) -> int:
    """Returns how many tokens a prompt begins with as one of some others does, at most."""
    longest = 0
    for other in others:
        if prompt[:longest] == other[:longest]:
            pairs = zip(prompt[longest:], other[longest:], strict=False)
            longest += sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs))
    return longest


class Engine:
    """The engine in its process; `ask` is for many threads at a time."""

    def __init__(self, served: Served) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=generate, args=(theirs, served), daemon=True)
        self._process.start()
        self._pipe.recv()
        self._numbers, self._lock = itertools.count(), threading.Lock()
        self._waiting: dict[int, tuple[threading.Event, dict[str, Any]]] = {}
        threading.Thread(target=self._receive, daemon=True).start()

    def ask(self, asked: dict[str, Any]) -> dict[str, Any]:
        """Returns the answer to a request, or what is wrong with it as `error`."""
        event, answer = threading.Event(), dict[str, Any]()
        with self._lock:
            number = next(self._numbers)
            self._waiting[number] = (event, answer)
            self._pipe.send((number, asked))
        if not event.wait(STALL):
            return {"error": f"no answer within {STALL:.0f} s"}
        return answer

    def _receive(self) -> None:
        while True:
            number, answer = self._pipe.recv()
            event, slot = self._waiting.pop(number)
            slot.update(answer)
            event.set()


class Answers:
    """Answers by request, in a file of JSON lines that a later server goes on with.

    A request has its seed in it, so attempts of one group have answers of their own.
    """

    def __init__(self, engine: Engine, file: Path) -> None:
        self._engine, self._lock = engine, threading.Lock()
        self._known: dict[str, dict[str, Any]] = {}
        if file.exists():
            for line in file.read_text(encoding="utf-8").splitlines():
                self._known.update(json.loads(line))
        self._file = file.open("a", encoding="utf-8")

    def ask(self, asked: dict[str, Any]) -> dict[str, Any]:
        """Returns the answer that a request had, or the engine's own; errors are not kept."""
        key = hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()
        if key not in self._known:
            answer = self._engine.ask(asked)
            if "error" in answer:
                return answer
            with self._lock:
                if key not in self._known:  # whoever asked at the same time was faster
                    self._known[key] = answer
                    self._file.write(f"{json.dumps({key: answer})}\n")
                    self._file.flush()
        return self._known[key]


def handler(engine: Engine | Answers, name: str) -> type[BaseHTTPRequestHandler]:
    """Returns what answers HTTP requests with an engine."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._send(200, {"object": "list", "data": [{"id": name, "object": "model"}]})

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            asked = json.loads(body)
            if asked.get("tools"):  # whoever asks can describe them in the prompt
                self._send(400, {"error": {"message": "this server takes no tools"}})
                return
            answer = engine.ask(asked)
            if "error" in answer:
                self._send(400, {"error": {"message": answer["error"]}})
                return
            message = {"role": "assistant", "content": answer["text"]}
            choice = {"index": 0, "message": message, "finish_reason": answer["ended"]}
            self._send(
                200,
                {
                    "id": f"chatcmpl-{time.time_ns()}",
                    "object": "chat.completion",
                    "created": int(time.time()),
                    "model": name,
                    "choices": [choice],
                    "usage": answer["usage"],
                },
            )

        def _send(self, status: int, content: dict[str, Any]) -> None:
            payload = json.dumps(content).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(payload)))
            self.end_headers()
            self.wfile.write(payload)

        def log_message(self, format: str, *arguments: Any) -> None:
            """Writes nothing."""

    return Handler


def main() -> None:
    parser = argparse.ArgumentParser(description="Serve a model to many at once.")
    parser.add_argument("weights", help="A GGUF file.")
    parser.add_argument("--name", required=True, help="What the model is asked by.")
    parser.add_argument("--port", type=int, default=8090)
    parser.add_argument("--slots", type=int, default=32, help="Answers that are written at once.")
    parser.add_argument("--cache", type=int, default=6, help="GB of memory for prompts.")
    parser.add_argument("--eight-bit", help="A folder for the model with eight bits a weight.")
    parser.add_argument("--answers", type=Path, help="A file: the same request, the same answer.")
    given = parser.parse_args()
    engine = Engine(Served(given.weights, given.slots, given.cache, given.eight_bit))
    asks = Answers(engine, given.answers) if given.answers else engine
    server = ThreadingHTTPServer(("127.0.0.1", given.port), handler(asks, given.name))
    print(f"{given.name} is at http://127.0.0.1:{given.port}/v1", file=sys.stderr)
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        server.server_close()


if __name__ == "__main__":
    main()
