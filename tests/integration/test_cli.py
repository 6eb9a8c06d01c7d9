"""The command line from end to end: real files, real processes for what only a process shows, and bad input."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import tailwise
from tailwise.cli.output import run

Fill = Callable[[Path], None]


@pytest.fixture
def proba(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> np.ndarray:
    """Probabilities in proba.npy of the working directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    array = np.random.default_rng(0).dirichlet([4.0, 2.0, 1.0, 0.5, 0.25], size=200)
    np.save("proba.npy", array)
    return array


def select(*arguments: str) -> int:
    return run(["select", "proba.npy", "--budget", "12", *arguments])


def json_of(capsys: pytest.CaptureFixture[str]) -> dict[str, object]:
    answer: dict[str, object] = json.loads(capsys.readouterr().out)
    return answer


def process(*arguments: str, **settings: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", **settings}
    command = [sys.executable, "-m", "tailwise", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment, timeout=600)


# In a process of its own


@pytest.mark.usefixtures("proba")
def test_a_process_ends_with_the_code_of_its_outcome() -> None:
    done = process("select", "proba.npy", "-b", "12", "--balance", "1", "--json", "--quiet")
    assert (done.returncode, done.stderr) == (0, "")
    assert len(json.loads(done.stdout)["indices"]) == 12
    assert process("select", "proba.npy", "-b", "201").returncode == 4
    assert process("select", "absent.npy", "-b", "5").returncode == 3
    assert process("select", "proba.npy", "-b", "5", "--wrong").returncode == 2


@pytest.mark.usefixtures("proba")
def test_the_version_is_that_of_the_package() -> None:
    assert process("--version").stdout == f"tailwise {tailwise.__version__}\n"


@pytest.mark.usefixtures("proba")
def test_a_terminal_that_knows_only_ascii_gets_an_answer_all_the_same() -> None:
    done = process("select", "proba.npy", "-b", "12", "--balance", "1", PYTHONIOENCODING="ascii", PYTHONUTF8="0")
    assert done.returncode == 0, done.stderr
    assert "12 of 200 images" in done.stdout


@pytest.mark.usefixtures("proba")
def test_a_reader_that_leaves_early_is_no_traceback() -> None:
    command = [sys.executable, "-m", "tailwise", "strategies"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stderr is not None
        child.stdout.close()
        assert child.stderr.read() == ""


@pytest.mark.usefixtures("interruptible")
def test_interrupting_ends_with_130_and_writes_nothing(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    rows = rng.dirichlet(np.full(60, 0.2), size=60_000).astype(np.float32)
    np.save(tmp_path / "large.npy", np.tile(rows, (10, 1)))  # so many that no machine is done before the signal comes
    command = [sys.executable, "-m", "tailwise", "path", "large.npy", "-b", "30000", "--out", "path.csv"]
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as child:
        assert child.stderr is not None
        assert child.stderr.readline()  # the first sign of life: the sweep has begun
        time.sleep(0.1)
        child.send_signal(signal.SIGINT)
        rest = child.stderr.read()
    assert child.returncode == 130
    assert "tailwise: interrupted" in rest
    assert "Traceback" not in rest
    assert [path.name for path in tmp_path.iterdir()] == ["large.npy"]


@pytest.mark.usefixtures("proba")
def test_selecting_loads_no_library_that_it_does_not_use() -> None:
    probe = "import sys; from tailwise.cli.output import run; run(sys.argv[1:]); print(*sys.modules)"
    command = [sys.executable, "-c", probe, "select", "proba.npy", "-b", "12", "--balance", "1"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    loaded = {name.split(".")[0] for name in done.stdout.splitlines()[-1].split()}
    assert "numpy" in loaded
    assert loaded & {"matplotlib", "pandas", "pyarrow", "sklearn", "torch"} == set()


# select


def test_select_picks_what_the_library_picks(proba: np.ndarray, capsys: pytest.CaptureFixture[str]) -> None:
    assert select("--counts", "20,12,6,2,0", "--score", "margin", "--balance", "0.6", "--seed", "3", "--json") == 0
    batch = tailwise.select(proba, 12, counts=[20, 12, 6, 2, 0], score="margin", balance=0.6, seed=3)
    answer = json_of(capsys)
    for name in ("indices", "objective", "bound", "lam", "target", "expected_counts", "method"):
        assert answer[name] == batch.to_dict()[name]


def test_the_limits_of_a_batch_are_those_of_the_library(proba: np.ndarray, capsys: pytest.CaptureFixture[str]) -> None:
    ids, groups = [f"img {row}.jpg" for row in range(len(proba))], [f"video {row // 5}" for row in range(len(proba))]
    Path("ids.txt").write_text("\n".join(ids) + "\n", encoding="utf-8")
    Path("out.txt").write_text("\n".join(ids[:20]), encoding="utf-8")
    Path("groups.txt").write_text("\n".join(groups), encoding="utf-8")
    named = ("--ids", "ids.txt", "--class-names", "a,b,c,d,e", "--exclude", "out.txt", "--include", "img 30.jpg")
    assert select(*named, "--groups", "groups.txt", "--per-group", "2", "--threads", "1", "--json") == 0
    batch = tailwise.select(
        proba, 12, ids=ids, class_names=list("abcde"), exclude=ids[:20], include=[ids[30]], groups=groups, per_group=2
    )
    answer = json_of(capsys)
    assert answer["indices"] == batch.indices.tolist()
    assert answer["names"] == answer["ids"] == list(batch)
    np.save("cost.npy", np.linspace(1, 3, len(proba)))
    assert select("--cost", "cost.npy", "--exclude", "0,1", "--quiet") == 0
    picks = [int(line) for line in capsys.readouterr().out.split()]
    assert picks == tailwise.select(proba, 12.0, cost=np.linspace(1, 3, len(proba)), exclude=[0, 1]).indices.tolist()


def test_limits_that_cannot_be_read_are_rejected(capsys: pytest.CaptureFixture[str], proba: np.ndarray) -> None:
    for options, message in (
        (("--exclude", "owl.jpg,kite.jpg"), "without --ids give row numbers"),
        (("--exclude", "no.txt"), "no.txt"),
        (("--groups", "no.npy"), "no.npy"),
        (("--cost", "a,b"), "--cost must hold numbers"),
        (("--ids", "a,b"), f"ids has 2 entries, but the pool has {len(proba)} images"),
    ):
        assert select(*options) != 0
        assert message in capsys.readouterr().err


def test_embeddings_logits_and_a_strategy_are_those_of_the_library(
    proba: np.ndarray, capsys: pytest.CaptureFixture[str]
) -> None:
    rng = np.random.default_rng(0)
    around, labelled = rng.normal(size=(len(proba), 6)), rng.normal(size=(40, 6))
    np.save("pool.npy", around)
    np.save("labelled.npy", labelled)
    counts = ["--counts", "20,12,6,2,0", "--json"]
    assert select(*counts, "--embeddings", "pool.npy", "--labelled-embeddings", "labelled.npy") == 0
    boundary = tailwise.select(
        proba, 12, counts=[20, 12, 6, 2, 0], embeddings=around, labelled_embeddings=labelled
    ).to_dict()  # fmt: skip
    answer = json_of(capsys)
    assert (answer["method"], answer["indices"]) == ("boundary", boundary["indices"])
    assert select(*counts) == 0
    plain = json_of(capsys)
    assert plain["method"] == "base"
    assert select(*counts, "--strategy", "base") == 0
    assert json_of(capsys)["indices"] == plain["indices"]
    np.save("logits.npy", np.log(proba))
    assert run(["select", "logits.npy", "-b", "12", "--logits", *counts]) == 0
    assert json_of(capsys)["indices"] == plain["indices"]


@pytest.mark.usefixtures("proba")
def test_the_target_of_the_paper_may_ask_for_more_than_the_budget(capsys: pytest.CaptureFixture[str]) -> None:
    counts = ["--counts", "40,0,0,0,0", "--balance", "1", "--json"]
    assert select("--target", "paper", *counts) == 0
    assert json_of(capsys)["target"] == pytest.approx([0, 10.4, 10.4, 10.4, 10.4])
    assert select(*counts) == 0
    assert json_of(capsys)["target"] == pytest.approx([0, 3, 3, 3, 3])


@pytest.mark.parametrize(
    ("arguments", "target"),
    [
        (["--target", "0,0,4,4,4"], tailwise.Target.counts([0, 0, 4, 4, 4])),
        (["--shares", "5,1,1,1,1"], tailwise.Target.shares([5, 1, 1, 1, 1])),
        (["--at-least", "3=2,4=1", "--at-most", "4"], tailwise.Target.ranges({3: 2, 4: 1}, 4)),
        (["--at-most", "0=1"], tailwise.Target.ranges(None, {0: 1})),
    ],
)
def test_every_kind_of_target_is_that_of_the_library(
    proba: np.ndarray, arguments: list[str], target: tailwise.Target, capsys: pytest.CaptureFixture[str]
) -> None:
    assert select(*arguments, "--score", "entropy", "--balance", "1", "--json") == 0
    batch = tailwise.select(proba, 12, target=target, balance=1.0, score="entropy")
    answer = json_of(capsys)
    assert answer["target"] == batch.target.tolist()
    assert answer["target_high"] == batch.target_high.tolist()
    assert answer["indices"] == batch.indices.tolist()


def test_scores_may_come_from_a_file(proba: np.ndarray, capsys: pytest.CaptureFixture[str]) -> None:
    scores = -proba[:, 0]
    np.save("scores.npy", scores)
    assert select("--score", "scores.npy", "--balance", "0", "--json") == 0
    assert set(json_of(capsys)["indices"]) == set(np.argsort(proba[:, 0])[:12].tolist())  # type: ignore[call-overload]


@pytest.mark.usefixtures("proba")
def test_the_summary_says_what_was_picked_how_good_it_is_and_where_it_went(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert select("--counts", "20,12,6,2,0", "--out", "picks[1].csv") == 0
    shown = capsys.readouterr().out
    assert "12 of 200 images, 5 classes" in shown
    assert "(auto)" in shown
    assert "best possible batch" in shown or "no batch is better" in shown
    assert "note: class 4 can reach at most" in shown
    assert shown.splitlines()[-1] == "Wrote 12 picks, best first, to picks[1].csv"
    assert max(map(len, shown.splitlines())) <= 80
    assert Path("picks[1].csv").read_text().startswith("rank,index\n1,")


@pytest.mark.usefixtures("proba")
def test_without_a_file_the_first_picks_are_shown_and_how_to_save_them(capsys: pytest.CaptureFixture[str]) -> None:
    assert select("--balance", "1", "--json") == 0
    first = ", ".join(map(str, json_of(capsys)["indices"][:8]))  # type: ignore[index]
    assert select("--balance", "1") == 0
    shown = capsys.readouterr().out
    assert f"Best first: {first}, … (4 more)" in shown
    assert "--out picks.csv" in shown


@pytest.mark.usefixtures("proba")
def test_quiet_prints_the_indices_alone_or_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert select("--balance", "1", "--quiet") == 0
    indices = [int(line) for line in capsys.readouterr().out.splitlines()]
    assert select("--balance", "1", "--quiet", "--out", "picks.npy") == 0
    assert capsys.readouterr() == ("", "")
    assert np.load("picks.npy").tolist() == indices


def test_a_parquet_pool_gives_the_picks_of_the_array(proba: np.ndarray, capsys: pytest.CaptureFixture[str]) -> None:
    Path("proba.parquet").write_bytes(parquet_bytes(proba))
    assert run(["select", "proba.parquet", "-b", "12", "--balance", "1", "--json"]) == 0
    from_parquet = json_of(capsys)["indices"]
    assert select("--balance", "1", "--json") == 0
    assert json_of(capsys)["indices"] == from_parquet


def test_many_classes_are_shown_in_part(proba: np.ndarray, capsys: pytest.CaptureFixture[str]) -> None:
    np.save("wide.npy", np.random.default_rng(1).dirichlet(np.ones(60), size=len(proba)))
    assert run(["select", "wide.npy", "-b", "30", "--balance", "1"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "The 25 of 60 classes farthest from their target" in shown


def test_one_class_can_be_picked_from(proba: np.ndarray, capsys: pytest.CaptureFixture[str]) -> None:
    np.save("one.npy", np.ones((len(proba), 1)))
    assert run(["select", "one.npy", "-b", "3"]) == 0
    assert "3 of 200 images, 1 class\n" in capsys.readouterr().out


# What cannot be done


@pytest.mark.parametrize(
    ("arguments", "code", "complaint"),
    [
        (["--budget", "0"], 2, "--budget"),
        (["--budget", "-3"], 2, "--budget"),
        (["--budget", "many"], 2, "--budget"),
        (["--budget", "201"], 4, "asked for 201 picks, but only 200 images are unlabelled"),
        (["--score", "entropi"], 2, "did you mean 'entropy'?"),
        (["--score", "galaxy"], 3, "strategy 'galaxy' reads the label of each pick before it makes the next one"),
        (["--balance", "heavy"], 2, "--balance"),
        (["--balance", "-1"], 2, "--balance"),
        (["--balance", "within 0.01%"], 4, "the closest batch is"),
        (["--target", "1,1,1,1,1", "--shares", "1,1,1,1,1"], 2, "--target and --shares"),
        (["--shares", "1,1,1,1,1", "--at-most", "3"], 2, "--shares and --at-least/--at-most"),
        (["--shares", "0,0,0,0,0"], 3, "all zero"),
        (["--at-least", "3", "--at-most", "2"], 3, "at least 3 and at most 2"),
        (["--counts", "1,2"], 2, "2 numbers, but the probabilities have 5 classes"),
        (["--counts", "1,2,3,4,-5"], 3, "class 4 is -5"),
        (["--counts", "1,2,3,4,nan"], 3, "class 4 is nan"),
        (["--counts", "absent.csv"], 3, "no file at absent.csv"),
        (["--score", "proba.npy"], 3, "score"),
        (["--gap", "nan"], 2, "--gap"),
        (["--out", "picks.txt"], 3, "must end in .csv"),
        (["--out", "absent/picks.csv"], 3, "there is no folder absent"),
    ],
)
@pytest.mark.usefixtures("proba")
def test_a_wrong_request_says_what_is_wrong(
    arguments: list[str], code: int, complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["select", "proba.npy", *(arguments if "--budget" in arguments else ["-b", "12", *arguments])]) == code
    printed = capsys.readouterr()
    assert complaint in printed.err
    assert len(printed.err.splitlines()) <= 2
    assert printed.out == ""


def parquet_bytes(array: np.ndarray) -> bytes:
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    buffer = io.BytesIO()
    parquet.write_table(pyarrow.table({f"prob_{k}": array[:, k] for k in range(array.shape[1])}), buffer)
    return buffer.getvalue()


def damaged(row: int, value: float) -> Fill:
    def fill(path: Path) -> None:
        array = np.full((20, 4), 0.25)
        array[row, 0] = value
        np.save(path, array)

    return fill


BAD_POOLS: dict[str, tuple[str, Fill, str]] = {
    "object dtype": ("x.npy", lambda p: np.save(p, np.array([[1, None]], dtype=object)), "plain .npy array"),
    "pickle": ("x.npy", lambda p: p.write_bytes(b"\x80\x04]\x94."), "plain .npy array"),
    "whole numbers": ("x.npy", lambda p: np.save(p, np.ones((3, 2), dtype=int)), "must be float16, float32 or float64"),
    "one dimension": ("x.npy", lambda p: np.save(p, np.ones(5)), "must be a matrix"),
    "three dimensions": ("x.npy", lambda p: np.save(p, np.ones((2, 2, 2))), "must be a matrix"),
    "no classes": ("x.npy", lambda p: np.save(p, np.ones((5, 0))), "no class columns"),
    "NaN": ("x.npy", damaged(3, np.nan), "row 3 holds NaN"),
    "infinity": ("x.npy", damaged(4, np.inf), "row 4 holds an infinite number"),
    "negative": ("x.npy", damaged(5, -0.25), "row 5 holds -0.25"),
    "wrong sum": ("x.npy", damaged(6, 0.75), "row 6 sums to 1.5"),
    "zero bytes": ("x.npy", lambda p: p.write_bytes(b""), "plain .npy array"),
    "cut short": ("x.npy", lambda p: p.write_bytes(npy_half()), "plain .npy array"),
    "zero bytes of Parquet": ("x.parquet", lambda p: p.write_bytes(b""), "cannot be read as Parquet"),
    "half a Parquet": ("x.parquet", lambda p: p.write_bytes(parquet_half()), "cannot be read as Parquet"),
    "a folder": ("x.npy", lambda p: p.mkdir(), "is a folder without .npy or .parquet files"),
    "another suffix": ("x.txt", lambda p: p.write_text("0.5 0.5"), "neither .npy nor .parquet"),
    "nothing": ("x.npy", lambda _: None, "no file at"),
}


def npy_half() -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, np.full((100, 4), 0.25))
    return buffer.getvalue()[: len(buffer.getvalue()) // 2]


def parquet_half() -> bytes:
    whole = parquet_bytes(np.full((100, 4), 0.25))
    return whole[: len(whole) // 2]


@pytest.mark.parametrize("kind", BAD_POOLS)
def test_a_bad_pool_is_refused_with_its_fault_and_nothing_is_written(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name, fill, complaint = BAD_POOLS[kind]
    fill(tmp_path / name)
    out = tmp_path / "picks.csv"
    assert run(["select", str(tmp_path / name), "-b", "2", "--out", str(out), "--json"]) == 3
    printed = capsys.readouterr()
    assert complaint in json.loads(printed.out)["error"]["message"]
    assert len(printed.err.splitlines()) == 1
    assert not out.exists()


# path, strategies, demo


def test_a_path_is_that_of_the_library(proba: np.ndarray, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["path", "proba.npy", "-b", "12", "--lams", "0.5,1", "--json"]) == 0
    assert json_of(capsys) == tailwise.balance_path(proba, 12, lams=[0.5, 1.0]).to_dict()


@pytest.mark.parametrize("name", ["path.png", "path.svg", "path.pdf", "path.csv"])
@pytest.mark.usefixtures("proba")
def test_a_path_is_shown_with_the_chosen_row_marked_and_kept(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["path", "proba.npy", "-b", "12", "--lams", "0.5,1,2", "--out", name]) == 0
    shown = capsys.readouterr().out
    assert len([line for line in shown.splitlines() if line.startswith("▶")]) == 2  # the row, and what it means
    assert f"Wrote {name}" in shown
    assert Path(name).stat().st_size > 100


@pytest.mark.usefixtures("proba")
def test_a_path_to_an_unknown_kind_of_file_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["path", "proba.npy", "-b", "12", "--out", "path.gif"]) == 3
    assert "must end in .png, .svg, .pdf, .csv" in capsys.readouterr().err


def test_strategies_are_those_of_the_registry(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["strategies", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert {row["name"] for row in answer["strategies"]} == set(tailwise.strategies.STRATEGIES)
    assert {row["name"] for row in answer["scores"]} == set(tailwise.score.SCORES)
    assert run(["strategies"]) == 0
    shown = capsys.readouterr().out
    assert all(name in shown for name in tailwise.strategies.STRATEGIES)


# bench


@pytest.mark.usefixtures("proba", "quick_figures", "quick_sweeps")
def test_an_experiment_runs_is_counted_and_reported(capsys: pytest.CaptureFixture[str]) -> None:
    Path("mine.toml").write_text(
        'name = "mine"\nbudget = 10\ncycles = 1\nseeds = [0, 1]\npool = { name = "digits" }\n'
        "imbalance = { factors = [0.2] }\nstart = { initial = 20 }\n"
        'strategies = [{ name = "random" }, { name = "margin", balance = [0, 0.5] }]\n'
    )
    assert run(["bench", "status", "mine.toml", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["complete"] == 0
    assert run(["bench", "report", "mine.toml"]) == 3
    assert "no results in" in capsys.readouterr().err
    assert run(["bench", "run", "mine.toml", "--json", "--seeds", "0"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert (answer["rows"], answer["failed"]) == (6, {})
    assert Path(answer["report"]).is_file()
    assert run(["bench", "run", "mine.toml", "--processes", "1", "--no-report"]) == 0
    shown = capsys.readouterr()
    assert "Margin-CB" in shown.out
    assert "3/3" in shown.err  # the seed that was done is not done again
    assert max(map(len, shown.out.splitlines())) <= 80
    assert run(["bench", "status", "mine.toml"]) == 0
    assert "6 of 6 trials are complete" in capsys.readouterr().out
    assert run(["bench", "run", "mine.toml", "--seeds", "0,x"]) == 2
    assert run(["bench", "run", "nine.toml"]) == 3
    assert run(["bench", "run", "mine"]) == 2


@pytest.mark.usefixtures("proba", "quick_figures", "quick_sweeps")
def test_a_report_names_the_classes_without_the_pool() -> None:
    rng = np.random.default_rng(0)
    labels = np.arange(120) % 3
    features = rng.normal(size=(120, 4)).astype(np.float32) + labels[:, None]
    names = np.array(["Bär", "Зебра", "cat"])
    np.savez("zoo.npz", x_train=features, y_train=labels, x_test=features, y_test=labels, class_names=names)
    Path("zoo.toml").write_text(
        'name = "zoo"\nbudget = 6\ncycles = 1\nseeds = [0]\npool = { name = "features", path = "zoo.npz" }\n'
        "imbalance = { factors = [0.3] }\nstart = { initial = 6 }\n"
        'strategies = [{ name = "random" }, { name = "entropy", balance = [0, 0.5] }]\n'
    )
    assert run(["bench", "run", "zoo.toml", "--processes", "1", "--quiet", "--no-report"]) == 0
    Path("zoo.npz").unlink()
    assert run(["bench", "report", "zoo.toml"]) == 0
    figures = [path.read_text(encoding="utf-8") for path in Path("tailwise-runs/zoo/figures").glob("*.svg")]
    assert any(all(name in figure for name in names.tolist()) for figure in figures)


@pytest.mark.usefixtures("proba")
def test_a_pool_that_cannot_be_read_is_told_once_and_before_anything_runs(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["bench", "run", "cifar10-features", "--data", "absent.npz"]) == 3
    shown = capsys.readouterr()
    assert shown.err.count("no features at absent.npz") == 1
    assert not list(Path("tailwise-runs").rglob("trials"))
