"""What a text means, as an endpoint's embedding of it: a vector of length 1.

An embedding is asked for like any other call: paced, tried again, priced and journalled, under a
key that says nothing of the run, so that a text is paid for once in a store.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

from tfgrpo.model.client import Calls
from tfgrpo.model.endpoint import (
    Answer,
    CallFailed,
    Endpoint,
    EndpointError,
    Request,
    prompt_tokens,
)
from tfgrpo.model.gather import gather_all
from tfgrpo.model.refusals import no_answer
from tfgrpo.model.response import UnusableResponse, usage_of

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Vectors: TypeAlias = NDArray[np.float32]

SCOPE = "embeddings"
"""Whose calls these are, in the journal's keys: the store's, not a run's."""
PATIENCE = 30.0
"""Seconds without any answer after which embeddings are given up: there are words to go by."""


@dataclass(slots=True)
class EmbeddingEndpoint(Endpoint):
    """An embedding model at an address. An answer's content is the vector, as base64."""

    _path: ClassVar[str] = "/embeddings"

    def _arguments(self, request: Request, refused: set[str]) -> dict[str, Any]:
        return {
            "model": self.model,
            "input": request.messages[0][1],
            "encoding_format": "float",
        }

    def _read(self, response: object, request: Request, seconds: float) -> Answer:
        import numpy as np

        with np.errstate(all="ignore"):  # what is too large is told below
            try:
                values = response["data"][0]["embedding"]  # type: ignore[index]
                vector = np.asarray(values, "<f4")
            except (KeyError, IndexError, TypeError, ValueError, AttributeError, OverflowError):
                raise UnusableResponse(no_answer(response, "embedding")) from None
            length = float(np.linalg.norm(vector)) if vector.ndim == 1 else 0.0
        if not (math.isfinite(length) and length > 0):
            raise UnusableResponse("the answer's embedding is no vector")
        usage = usage_of(response, prompt_tokens(request), "")
        return Answer(
            content=base64.b64encode((vector / length).astype("<f4").tobytes()).decode(),
            finish_reason="stop",
            prompt_tokens=usage.prompt,
            seconds=seconds,
            estimated=usage.estimated,
        )


class Embeddings:
    """Embeddings of texts, each asked for once."""

    def __init__(self, calls: Calls) -> None:
        self.calls = calls
        self._known: dict[str, Vectors] = {}

    async def similarity(self, text: str, others: Sequence[str]) -> list[float]:
        """Returns the cosine of a text with each of the others, in [-1, 1].

        Raises CallFailed where an embedding cannot be had: at once when the endpoint was given up,
        which takes `PATIENCE` seconds at most. Raises EndpointError where it cannot serve the run,
        and BudgetReached.
        """
        import numpy as np

        await self._ready((text, *others))
        vectors = [self._known[one] for one in (text, *others)]
        if len({len(vector) for vector in vectors}) > 1:
            raise CallFailed("embeddings of different lengths cannot be compared")
        cosines = np.stack(vectors[1:]) @ vectors[0] if others else np.zeros(0)
        return [float(cosine) for cosine in cosines]

    async def vectors(self, texts: Sequence[str]) -> Vectors:
        """Returns the embedding of each text, a row each. Raises as `similarity` does."""
        import numpy as np

        await self._ready(texts)
        vectors = [self._known[text] for text in texts]
        if len({len(vector) for vector in vectors}) > 1:
            raise CallFailed("embeddings of different lengths cannot be compared")
        return np.stack(vectors)

    async def _ready(self, texts: Sequence[str]) -> None:
        """Has embeddings of texts; raises CallFailed where the endpoint was given up."""
        try:
            await gather_all(map(self._learn, dict.fromkeys(texts)))
        except EndpointError as error:
            if not self.calls.throttle.given_up:
                raise
            raise CallFailed(f"the embedding endpoint is given up: {error}") from None

    async def _learn(self, text: str) -> None:
        import numpy as np

        if text in self._known:
            return
        request = Request("embedding", (("user", " ".join(text.split())),), 0.0, 0)
        recorded = await self.calls.ask(request)
        self._known[text] = np.frombuffer(base64.b64decode(recorded.answer.content), "<f4")
