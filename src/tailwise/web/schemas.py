"""What travels over HTTP: requests, strictly typed and bounded, and answers, as the OpenAPI document tells them."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from ..campaign.names import MOST_ANNOTATOR, clean_annotator

IMAGE = "^[0-9a-f]{16}$"
KEY = "^[A-Za-z0-9_-]{8,64}$"
SEAL_DIGITS = 16
MOST_ANSWERS = 200
MOST_LEASED = 64
MOST_GRID = 200
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


class Asked(BaseModel):
    """A request: nothing is converted, nothing unknown is passed over."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


class Query(BaseModel):
    """What stands behind the ? of an address: texts, so numbers are read; an unknown name is a slip of the pen."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class StateQuery(Query):
    """Who asks: whose answers and decisions are one's own."""

    annotator: Annotator | None = None


class HistoryQuery(Query):
    """Whose answers, and how many."""

    annotator: Annotator
    limit: int = Field(default=50, ge=1, le=1000)


class ImageQuery(Query):
    """How large an image is wanted, in pixels of its longer side, and with which bytes."""

    size: Literal["160", "512", "1280", "2048"] = "512"
    seal: Seal | None = None


class Told(BaseModel):
    """An answer."""

    model_config = ConfigDict(frozen=True, protected_namespaces=())


class ErrorText(Told):
    """What went wrong: a word for programs, a sentence for people."""

    code: str
    message: str


class Error(Told):
    """The one shape of every error."""

    error: ErrorText


class CampaignName(Told):
    """Which campaign this is."""

    id: str
    name: str


class Klass(Told):
    """A class that an image can belong to."""

    id: int
    name: str
    key: str  # of the keyboard, "" where none is left
    retired: bool


class RoundProgress(Told):
    """How far the open round is."""

    id: int
    budget: Count
    answered: Count  # images with all that they want, skipped ones among them
    skipped: Count  # of these, images of which nobody has said what they are
    remaining: Count
    complete: bool
    mine: Count  # answers of the annotator who asks, without skips


class ClassBalance(Told):
    """How many labels a class has and should have."""

    class_id: int
    labelled: Count
    round_labelled: Count
    expected: float | None  # new ones of this round, as the model foresaw it
    target: float | None  # of all labels, when the round is done


class Habits(Told):
    """How people label in this campaign."""

    overlap: int
    blind: bool


class NextBatch(Told):
    """What the next round would be made of."""

    budget: Count = Field(description="images of a round, where nothing else is asked for")
    left: Count = Field(description="images that can be chosen")
    skipped: Count = Field(description="those that can be chosen, too, where it is asked for: people have skipped them")


class Job(Told):
    """Training and choosing in the background."""

    state: Literal["idle", "running", "done", "failed"]
    share: Share = 0.0
    what: str = ""
    error: str | None = None
    round: int | None = None


class Images(Told):
    """How many images the campaign has."""

    usable: Count = Field(description="those that can be shown: neither copies nor in quarantine")


class State(Told):
    """All that the page shows around the image."""

    campaign: CampaignName
    images: Images
    classes: list[Klass]
    round: RoundProgress | None
    balance: list[ClassBalance]
    settings: Habits
    next: NextBatch | None = Field(description="null while the open round waits for answers")
    job: Job
    annotators: list[str]
    conflicts: Count
    schema_version: int
    version: str


class Guess(Told):
    """A class and how sure the model is of it."""

    class_id: int
    confidence: Share


class Prelabel(Guess):
    """What the model takes an image for."""

    top: list[Guess]


class Picture(Told):
    """An image to be answered."""

    key: str
    seal: str
    width: Count
    height: Count
    rank: int
    prelabel: Prelabel | None
    lease_until: int  # microseconds since 1970


class Pictures(Told):
    """Images that are kept for the annotator who asked."""

    images: list[Picture]


class Lease(Asked):
    """Asks for images to label."""

    annotator: Annotator
    count: int = Field(default=8, ge=1, le=MOST_LEASED)
    tab: str | None = Field(default=None, max_length=64)


class Grid(Asked):
    """Asks for images of one proposed class."""

    annotator: Annotator
    class_id: ClassId
    count: int = Field(default=48, ge=1, le=MOST_GRID)


class Release(Asked):
    """Gives images back unanswered."""

    annotator: Annotator
    images: list[ImageKey] = Field(max_length=1000)


class Released(Told):
    """How many were given back."""

    released: Count


class Answer(Asked):
    """What somebody says about an image; a label names its class, the other kinds name none."""

    key: Key
    image: ImageKey
    kind: AnswerKind
    class_id: ClassId | None = None
    seal: Seal | None = Field(default=None, description="of the bytes that were seen; others are not answered by it")
    seconds: float | None = Field(default=None, ge=0, le=86_400, description="from seeing the image to answering")
    at: int | None = Field(default=None, ge=0, le=FAR, description="microseconds since 1970 by the client's clock")


class Answers(Asked):
    """Answers of one annotator."""

    annotator: Annotator
    answers: list[Answer] = Field(min_length=1, max_length=MOST_ANSWERS)


class Saved(Told):
    """An answer that is on the disk."""

    key: str
    saved: Literal[True] = True
    event: int
    fresh: bool  # False: it was there already


class NotSaved(Told):
    """An answer that was refused."""

    key: str
    saved: Literal[False] = False
    error: ErrorText


class Results(Told):
    """One result for each answer, in their order."""

    results: list[Saved | NotSaved]


class Undo(Asked):
    """Takes an answer back: the one named, or the annotator's last."""

    annotator: Annotator
    key: Key
    undoes: Key | None = None


class Undone(Told):
    """The answer that was taken back."""

    image: str
    kind: str
    class_id: int | None
    restored: bool = False  # True where an undo was undone: the answer stands again


class UndoResult(Told):
    """Null where there was nothing to take back."""

    undone: Undone | None


class Past(Told):
    """One answer of the past."""

    event: int
    key: str
    image: str
    seal: str
    kind: str
    class_id: int | None
    at: int  # microseconds since 1970


class History(Told):
    """Standing answers, the latest first; those changed since are among them, and stand again when that is undone."""

    items: list[Past]


class Voice(Told):
    """What one annotator said about an image."""

    annotator: str
    kind: str
    class_id: int | None


class Conflict(Told):
    """An image on which people differ."""

    image: str
    seal: str
    width: Count
    height: Count
    prelabel: Prelabel | None
    answers: list[Voice]


class PairAgreement(Told):
    """How far two people agree beyond chance."""

    first: str
    second: str
    cohen: float
    images: Count  # that both answered


class Agreement(Told):
    """How far people agree beyond chance; null where too few images have two answers."""

    cohen: float | None = Field(description="Cohen's κ is of two people: this is its mean over all pairs that have one")
    pairs: list[PairAgreement] = Field(description="those with the most images in common first; at most ten")
    pair_count: Count = Field(description="how many pairs have a κ")
    krippendorff: float | None  # of all people at once
    images: Count  # with two answers or more


class Conflicts(Told):
    """All images on which people differ."""

    items: list[Conflict]
    settled: list[Past] = Field(description="decisions of the one who asks that still stand, the latest first")
    agreement: Agreement


class Settle(Asked):
    """Decides a conflict."""

    annotator: Annotator
    key: Key
    image: ImageKey
    kind: SettleKind
    class_id: ClassId | None = None


class Settled(Told):
    """The decision as it was recorded."""

    event: int
    fresh: bool


class ClassCount(Told):
    """Of one class in a round."""

    class_id: int
    expected: float | None
    target: float | None
    realised: Count


class Certificate(Told):
    """How good the choice of a round is, proven."""

    status: str
    objective: float | None
    bound: float | None
    gap: float | None
    l1: float | None = Field(description="distance of the expected counts from the target, in images")
    seconds: float | None  # that choosing took


class Round(Told):
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


class Rounds(Told):
    """Every round, the first one first."""

    items: list[Round]


class Next(Asked):
    """Asks for training and for a new round."""

    budget: int | None = Field(default=None, ge=1, le=1_000_000)
    strategy: str | None = Field(default=None, min_length=1, max_length=60)
    balance: float | Annotated[str, Field(max_length=60)] | None = Field(
        default=None, description='a weight λ ≥ 0, "auto", "paper" or "none"'
    )
    seed: int | None = Field(
        default=None, ge=0, le=2**32 - 1, description="equal labels and seeds give equal rounds; by default its number"
    )
    allow_unfinished: bool = Field(default=False, description="open it though answers are missing in the open round")
    skipped: bool = Field(default=False, description="choose also from the images that people have skipped")


class JobStarted(Told):
    """The job that was started."""

    job: Job
