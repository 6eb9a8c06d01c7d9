"""Schemas of requests, strictly typed and bounded, and of responses; the OpenAPI document is made from them."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from ..campaign.classes import MOST_ANNOTATOR, clean_annotator
from .settings import Role

IMAGE = "^[0-9a-f]{16}$"
KEY = "^[A-Za-z0-9_-]{8,64}$"
MOST_ANSWERS = 200
MOST_LEASED = 64
FAR = (1 << 53) - 1  # larger whole numbers lose digits in a browser

Key = Annotated[str, Field(pattern=KEY, description="made by the client; the same request twice is recorded once")]
ImageKey = Annotated[str, Field(pattern=IMAGE, description="the only name of an image that the server gives away")]
Seal = Annotated[
    str, Field(pattern="^[0-9a-f]{16}$", description="of an image's bytes: the first digits of their SHA-256")
]
Annotator = Annotated[
    str, Field(min_length=1, max_length=MOST_ANNOTATOR, description="who answers"), AfterValidator(clean_annotator)
]
ClassId = Annotated[int, Field(ge=1, le=FAR)]
Count = Annotated[int, Field(ge=0)]
Share = Annotated[float, Field(ge=0, le=1)]
AnswerKind = Literal["label", "other", "skip"]
SettleKind = Literal["settle-label", "settle-other"]


class RequestBody(BaseModel):
    """Base of request bodies: no type conversion, no unknown fields."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


class Query(BaseModel):
    """Base of query parameters: numbers are parsed from text; unknown names are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class StateQuery(Query):
    """The annotator who asks, whose own answers are counted."""

    annotator: Annotator | None = None


class HistoryQuery(Query):
    """The annotator, how many answers, and the event before which they were given."""

    annotator: Annotator
    limit: int = Field(default=50, ge=1, le=1000)
    before: int | None = Field(default=None, ge=1, le=FAR, description="the last event of the page of answers before")


class ImageQuery(Query):
    """Pixels of the longer side, and the seal of the bytes."""

    size: Literal["160", "512", "1280", "2048", "8192"] = "512"
    seal: Seal | None = None


class ResponseBody(BaseModel):
    """Base of responses."""

    model_config = ConfigDict(frozen=True, protected_namespaces=())


class ErrorText(ResponseBody):
    """What went wrong: a code for programs, a message for people."""

    code: str
    message: str


class Error(ResponseBody):
    """The one shape of every error."""

    error: ErrorText


class CampaignName(ResponseBody):
    """The campaign's id and name."""

    id: str
    name: str


class LabelClass(ResponseBody):
    """A class that an image can belong to."""

    id: int
    name: str
    key: str  # of the keyboard: its own, or the digit of its place; "" where none is left
    hotkey: str | None = Field(description="its own key; the digit of its place works, too")
    retired: bool


class RoundProgress(ResponseBody):
    """How far the open round is."""

    id: int
    budget: Count
    answered: Count  # images with all wanted answers, including skipped ones
    skipped: Count  # of these, images without any answer but skips
    remaining: Count
    complete: bool
    mine: Count  # answers of the annotator who asks, without skips
    rough: bool = Field(description="whether the model's percentages rest on too few labels to be relied on")


class ClassBalance(ResponseBody):
    """How many labels a class has and should have."""

    class_id: int
    labelled: Count
    round_labelled: Count
    expected: float | None  # new labels of this round, predicted by the model
    target: float | None  # of all labels, when the round is done


class LabelSettings(ResponseBody):
    """How people label in this campaign."""

    overlap: int
    blind: bool
    plain_features: bool = Field(description="whether images are compared without a trained net")


class NextBatch(ResponseBody):
    """What the next round can be chosen from."""

    budget: Count = Field(description="images of a round by default")
    left: Count = Field(description="images that can be chosen")
    skipped: Count = Field(description="skipped images, which can be chosen on request")


class Job(ResponseBody):
    """Training and choosing in the background."""

    state: Literal["idle", "running", "done", "failed"]
    share: Share = 0.0
    what: str = ""
    error: str | None = None
    round: int | None = None


class Images(ResponseBody):
    """How many images the campaign has."""

    usable: Count = Field(description="images that can be shown: neither copies nor in quarantine")


class State(ResponseBody):
    """Everything that the page shows around the image."""

    campaign: CampaignName
    images: Images
    classes: list[LabelClass]
    classes_version: Count = Field(description="counts up with each change of a class; then ask for /api/classes again")
    round: RoundProgress | None
    balance: list[ClassBalance]
    settings: LabelSettings
    next: NextBatch | None = Field(description="null while the open round waits for answers")
    job: Job
    annotators: list[str]
    conflicts: Count
    role: Role = Field(description="whose link was opened: annotators can label, comment and flag, and no more")
    schema_version: int
    version: str


class Prediction(ResponseBody):
    """A class and its probability by the model."""

    class_id: int
    confidence: Share


class Prelabel(Prediction):
    """The model's prediction for an image, with the likeliest classes."""

    top: list[Prediction]


class LeasedImage(ResponseBody):
    """An image to be answered."""

    key: str
    seal: str
    width: Count
    height: Count
    rank: int
    prelabel: Prelabel | None
    lease_until: int  # microseconds since 1970


class LeasedImages(ResponseBody):
    """Images that are leased to the annotator who asked."""

    images: list[LeasedImage]


class Lease(RequestBody):
    """Asks for images to label."""

    annotator: Annotator
    count: int = Field(default=8, ge=1, le=MOST_LEASED)
    tab: str | None = Field(default=None, max_length=64)
    first: ImageKey | None = Field(default=None, description="an image to give first, where it is free")


class Release(RequestBody):
    """Gives images back unanswered."""

    annotator: Annotator
    images: list[ImageKey] = Field(max_length=1000)


class Released(ResponseBody):
    """How many were given back."""

    released: Count


class Answer(RequestBody):
    """One answer about an image; only a label has a class."""

    key: Key
    image: ImageKey
    kind: AnswerKind
    class_id: ClassId | None = None
    seal: Seal | None = Field(
        default=None, description="of the bytes that were shown; rejected where they have changed"
    )
    seconds: float | None = Field(default=None, ge=0, le=86_400, description="from seeing the image to answering")
    at: int | None = Field(default=None, ge=0, le=FAR, description="microseconds since 1970 by the client's clock")


class Answers(RequestBody):
    """Answers of one annotator."""

    annotator: Annotator
    answers: list[Answer] = Field(min_length=1, max_length=MOST_ANSWERS)


class Saved(ResponseBody):
    """An answer that is on the disk."""

    key: str
    saved: Literal[True] = True
    event: int
    fresh: bool  # False: it was there already


class NotSaved(ResponseBody):
    """An answer that was rejected."""

    key: str
    saved: Literal[False] = False
    error: ErrorText


class Results(ResponseBody):
    """One result for each answer, in their order."""

    results: list[Saved | NotSaved]


class Undo(RequestBody):
    """Takes an answer back: the one named, or the annotator's last."""

    annotator: Annotator
    key: Key
    undoes: Key | None = None


class Undone(ResponseBody):
    """The answer that was taken back."""

    image: str
    kind: str
    class_id: int | None
    restored: bool = False  # True where an undo was undone: the answer is valid again


class UndoResult(ResponseBody):
    """Null where there was nothing to undo."""

    undone: Undone | None


class PastAnswer(ResponseBody):
    """One answer of the past."""

    event: int
    key: str
    image: str
    seal: str
    kind: str
    class_id: int | None
    at: int  # microseconds since 1970


class History(ResponseBody):
    """Valid answers, the latest first, including those changed since: undoing the change restores them."""

    items: list[PastAnswer]


class ConflictAnswer(ResponseBody):
    """The answer of one annotator about an image."""

    annotator: str
    kind: str
    class_id: int | None


class Conflict(ResponseBody):
    """An image on which people differ."""

    image: str
    seal: str
    width: Count
    height: Count
    prelabel: Prelabel | None
    answers: list[ConflictAnswer]


class PairAgreement(ResponseBody):
    """How far two people agree beyond chance."""

    first: str
    second: str
    cohen: float
    images: Count  # that both answered


class Agreement(ResponseBody):
    """How far people agree beyond chance; null where too few images have two answers."""

    cohen: float | None = Field(description="Cohen's κ is of two people: this is its mean over all pairs that have one")
    pairs: list[PairAgreement] = Field(description="those with the most images in common first; at most ten")
    pair_count: Count = Field(description="how many pairs have a κ")
    krippendorff: float | None  # of all people at once
    images: Count  # with two answers or more


class Conflicts(ResponseBody):
    """All images on which people differ."""

    items: list[Conflict]
    settled: list[PastAnswer] = Field(description="valid decisions of the annotator who asks, the latest first")
    agreement: Agreement


class Settle(RequestBody):
    """Decides a conflict."""

    annotator: Annotator
    key: Key
    image: ImageKey
    kind: SettleKind
    class_id: ClassId | None = None
    found_by: Literal["review"] | None = Field(default=None, description="where it was found, if not as a conflict")


class Settled(ResponseBody):
    """The recorded decision."""

    event: int
    fresh: bool


class ClassCount(ResponseBody):
    """Of one class in a round."""

    class_id: int
    expected: float | None
    target: float | None
    realised: Count


class Certificate(ResponseBody):
    """How good the choice of a round is, proven."""

    status: str
    objective: float | None
    bound: float | None
    gap: float | None
    l1: float | None = Field(description="distance of the expected counts from the target, in images")
    seconds: float | None  # that choosing took


class Round(ResponseBody):
    """A round, open or past."""

    id: int
    opened_at: int
    closed_at: int | None
    budget: Count
    answered: Count
    strategy: str
    balance: str
    lam: float | None
    model_version: str | None
    counts: list[ClassCount]
    certificate: Certificate | None


class Rounds(ResponseBody):
    """Every round, the first one first."""

    items: list[Round]


class Next(RequestBody):
    """Asks for training and for a new round."""

    budget: int | None = Field(default=None, ge=1, le=1_000_000)
    strategy: str | None = Field(default=None, min_length=1, max_length=60)
    balance: float | Annotated[str, Field(max_length=60)] | None = Field(
        default=None, description='a weight λ ≥ 0, "auto", "paper" or "none"'
    )
    seed: int | None = Field(
        default=None, ge=0, le=2**32 - 1, description="equal labels and seeds give equal rounds; by default its number"
    )
    allow_unfinished: bool = Field(default=False, description="open it although answers are missing in the open round")
    skipped: bool = Field(default=False, description="choose also from the images that people have skipped")


class JobStarted(ResponseBody):
    """The job that was started."""

    job: Job
