"""Requests and responses, as pydantic models: they check what clients send, and OpenAPI describes them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, FiniteFloat, create_model, model_validator

TEXT = "solve a sparse symmetric eigenvalue problem"
Share = Annotated[FiniteFloat, Field(ge=0, le=1)]
#: A label's name: `labels.txt` has one a line.
Name = Annotated[str, Field(min_length=1, max_length=1000, pattern=r"^[^\t\r\n\x00]*\S[^\t\r\n\x00]*$")]


class _Request(BaseModel, strict=True, extra="forbid"):
    pass


class SuggestRequest(
    _Request,
    json_schema_extra={"examples": [{"text": TEXT, "k": 3}, {"texts": [TEXT, "send a mail"], "threshold": 0.1}]},
):
    """Documents to tag: `text`, `texts` or, for models of feature rows, `rows`."""

    text: str | None = Field(None, description="One document.")
    texts: list[str] | None = Field(None, description="Several documents.")
    rows: list[dict[str, FiniteFloat]] | None = Field(
        None, description="Feature rows: numbers by column, from 0, for models that take rows."
    )
    k: int = Field(5, ge=1, description="Most labels per document.")
    threshold: Share | None = Field(
        None,
        description="Leave out labels with a lower probability; the default is the model's own threshold.",
    )
    allowed: list[str] | None = Field(None, description="Suggest only these labels.")
    favor_rare: Share = Field(0.0, description="Rank rare labels higher; 0 ranks by probability alone.")

    @model_validator(mode="after")
    def _one_kind(self) -> SuggestRequest:
        if sum(each is not None for each in (self.text, self.texts, self.rows)) != 1:
            raise ValueError("wanted exactly one of `text`, `texts` and `rows`")
        return self


class ExplainRequest(_Request, json_schema_extra={"examples": [{"text": TEXT, "k": 1}]}):
    """A text, and the labels to explain: the given ones, or the k best."""

    text: str
    labels: list[str] | None = None
    k: int = Field(1, ge=1)


class SimilarRequest(_Request, json_schema_extra={"examples": [{"text": TEXT, "k": 5}]}):
    """A text, and how many similar training documents to find."""

    text: str
    k: int = Field(5, ge=1)


class FeedbackRequest(
    _Request,
    json_schema_extra={"examples": [{"text": TEXT, "accept": ["linear algebra"], "reject": ["poetry"]}]},
):
    """A text, the labels that are right for it, new ones included, and those that are wrong: names or URIs."""

    text: str = Field(min_length=1)
    accept: list[Name] = Field(default_factory=list, max_length=1000)
    reject: list[Name] = Field(default_factory=list, max_length=1000)

    @model_validator(mode="after")
    def _says_something(self) -> FeedbackRequest:
        if not self.accept and not self.reject:
            raise ValueError("wanted at least one label in `accept` or `reject`")
        if both := set(self.accept) & set(self.reject):
            raise ValueError(f"found {min(both)!r} in both `accept` and `reject`; wanted it in one of them")
        return self


class Fault(BaseModel):
    """What went wrong, in a sentence."""

    detail: str


class Health(BaseModel):
    """The state of the service. `models` is empty for clients without a token that they need."""

    status: Literal["ok"]
    version: str
    models: list[str]


class Summary(BaseModel):
    """A model in a list."""

    id: str
    labels: int
    documents: int
    takes: Literal["texts", "rows"]
    version: str


class Part(BaseModel):
    """A file of a model."""

    name: str
    bytes: int


class Card(Summary):
    """Everything about a model."""

    features: int
    bytes: int
    parts: list[Part]
    parameters: dict[str, int]
    history: list[dict[str, Any]]
    metric: str
    decided: list[dict[str, Any]]
    training: dict[str, Any]
    has_index: bool
    can_learn: bool
    threshold: float = Field(description="The default threshold of suggestions; 0 if none is stored.")
    threshold_from: Literal["stored", "none"]


class FoundLabel(BaseModel):
    """A label, and how many documents have it."""

    label: str
    documents: int | None


class Labels(BaseModel):
    """Labels that match a query, and the number of all that match."""

    labels: list[FoundLabel]
    total: int


class NearLabel(BaseModel):
    """A label, and its similarity to another."""

    label: str
    similarity: float


class Near(BaseModel):
    """Labels near a label."""

    label: str
    near: list[NearLabel]


class Suggestion(BaseModel):
    """A label, and its probability."""

    label: str
    uri: str | None = Field(None, description="Only if the model's labels have URIs besides their names.")
    probability: float


class Tagged(BaseModel):
    """The labels of a document, best first."""

    labels: list[Suggestion]


class Suggestions(BaseModel):
    """A result per document, in their order, and the threshold that was used."""

    model: str
    version: str
    threshold: float | None
    threshold_from: Literal["asked", "stored", "none"] = Field(
        description="Whether the request asked for the threshold, or training stored it in the model."
    )
    results: list[Tagged]


class Contribution(BaseModel):
    """What a word or feature adds to a label's score; spans count Unicode code points."""

    term: str
    kind: str
    value: float
    spans: list[tuple[int, int]]


class Explanation(BaseModel):
    """The parts of a label's score: `base` and all contributions add up to it."""

    label: str
    probability: float
    score: float
    base: float
    contributions: list[Contribution]
    spans: list[tuple[int, int, float]]


class Explanations(BaseModel):
    """An explanation per label."""

    model: str
    version: str
    explanations: list[Explanation]


class SimilarDocument(BaseModel):
    """A training document, and its similarity to the text."""

    id: str | int
    similarity: float


class Learning(BaseModel):
    """The state of learning from feedback."""

    state: Literal["idle", "learning", "failed"]
    version: str
    taught: int
    waiting: int
    can_roll_back: bool
    message: str | None


class Recorded(BaseModel):
    """An entry that was recorded or undone."""

    id: str
    learning: Learning


class Entry(BaseModel):
    """Feedback about a text."""

    id: str
    time: str | float
    text: str
    accept: list[str]
    reject: list[str]
    version: str
    undone: bool


class SuggestForm(BaseModel, extra="ignore", json_schema_extra={"examples": [{"text": "a fox", "limit": 10}]}):
    """The fields of Annif's form that matter here; others, such as a document's metadata, are ignored."""

    text: str
    limit: int = Field(10, ge=0, description="Most labels.")
    threshold: FiniteFloat = Field(0.0, ge=0, le=1, description="Leave out labels with a lower score.")


class AnnifResult(BaseModel):
    """A suggested subject."""

    uri: str
    label: str
    notation: str | None
    score: float


# Responses with one field.
Models = create_model("Models", models=(list[Summary], ...))
SimilarDocuments = create_model("SimilarDocuments", documents=(list[SimilarDocument], ...))
Entries = create_model("Entries", entries=(list[Entry], ...))
Version = create_model("Version", version=(str, ...))
AnnifResults = create_model("AnnifResults", results=(list[AnnifResult], ...))
