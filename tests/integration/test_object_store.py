"""Matrices in an object store: a real S3 server on a real port, spoken to over HTTP."""

from __future__ import annotations

import io
import json
import logging
import pickle
import subprocess
import sys
from collections.abc import Iterator

import boto3
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import requests
from moto.server import ThreadedMotoServer

import tailwise
from tailwise.cli.output import run
from tailwise.errors import BadFile, BadProbabilities
from tailwise.matrix import npy as npy_files
from tailwise.matrix.open import open_matrix
from tailwise.matrix.stores import shown_place

PROBA = np.random.default_rng(0).dirichlet([4.0, 2.0, 1.0, 0.5, 0.25], size=240).astype(np.float32)
COUNTS = [9, 5, 3, 2, 1]


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """The address of a server whose bucket holds the same matrix in several forms."""
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    moto = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    moto.start()
    host, port = moto.get_host_and_port()
    address = f"http://{host}:{port}"
    fill(address)
    yield address
    moto.stop()


def fill(address: str) -> None:
    store = boto3.client(
        "s3", endpoint_url=address, aws_access_key_id="me", aws_secret_access_key="mine", region_name="us-east-1"
    )
    store.create_bucket(Bucket="pool")

    def put(key: str, content: bytes) -> None:
        store.put_object(Bucket="pool", Key=key, Body=content)

    for number, part in enumerate(np.array_split(PROBA, 11)):
        put(f"shards/shard-{number}.npy", npy(part))
        put(f"dataset/day={number // 6}/part-{number:05d}.parquet", parquet(part))
    put("shards/manifest.json", b"{}")
    put("dataset/_SUCCESS", b"")
    put("proba.npy", npy(PROBA))
    put("proba.parquet", parquet(PROBA))
    put("für alle/pröba 1.npy", npy(PROBA))
    put("bad/0.npy", npy(PROBA))
    put("bad/1.npy", npy(PROBA)[:-100])
    put("fortran/0.npy", npy(np.asfortranarray(PROBA)))
    put("doubled/p.npy", npy(PROBA * 2))
    put("text/p.npy", b"hello")
    put("text/p.parquet", b"hello")
    put("empty/notes.txt", b"hello")


def npy(array: np.ndarray) -> bytes:
    content = io.BytesIO()
    np.save(content, array)
    return content.getvalue()


def parquet(array: np.ndarray) -> bytes:
    content = io.BytesIO()
    pq.write_table(
        pa.table({f"prob_{k}": array[:, k].copy() for k in range(array.shape[1])}), content, row_group_size=7
    )
    return content.getvalue()


@pytest.fixture
def pool(server: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """The bucket, reached by the usual environment variables."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "me")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "mine")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_ENDPOINT_URL", server)
    return "s3://pool"


FORMS = ["shards", "shards/", "dataset", "proba.npy", "proba.parquet", "für alle/pröba 1.npy", "f%C3%BCr%20alle/"]


@pytest.mark.parametrize("key", FORMS)
def test_rows_are_those_that_were_stored(pool: str, key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(npy_files, "PART_BYTES", 500)
    matrix = open_matrix(f"{pool}/{key}")
    assert (matrix.shape, matrix.dtype) == (PROBA.shape, PROBA.dtype)
    assert np.array_equal(matrix[17:93], PROBA[17:93])
    rows = np.sort(np.random.default_rng(1).integers(0, 240, size=50))
    assert np.array_equal(matrix[rows], PROBA[rows])
    again = pickle.loads(pickle.dumps(matrix))
    assert np.array_equal(again[:], PROBA)
    assert shown_place(again.location) == f"{pool}/{key}"


def test_the_server_travels_with_a_matrix_and_keys_do_not(pool: str, monkeypatch: pytest.MonkeyPatch) -> None:
    packed = pickle.dumps(open_matrix(f"{pool}/shards"))
    assert b"mine" not in packed
    monkeypatch.delenv("AWS_ENDPOINT_URL")
    assert np.array_equal(pickle.loads(packed)[:], PROBA)


@pytest.mark.long
def test_shards_in_a_bucket_are_selected_from_on_a_cluster(pool: str) -> None:
    command = [sys.executable, "-m", "tailwise", "select", f"{pool}/shards", "--budget", "20", "--balance", "0.5"]
    here, there = (
        json.loads(subprocess.run([*command, "--json", "--engine", engine], capture_output=True, check=True).stdout)
        for engine in ("local", "ray")
    )
    assert there["indices"] == here["indices"]
    assert there["bound"] == here["bound"]


@pytest.mark.parametrize("key", ["shards", "dataset", "proba.npy", "proba.parquet"])
def test_picks_are_those_from_the_array(pool: str, key: str) -> None:
    wanted = tailwise.select(PROBA, 12, counts=COUNTS, balance=1.0, score="entropy")
    found = tailwise.select(f"{pool}/{key}", 12, counts=COUNTS, balance=1.0, score="entropy")
    assert found.indices.tolist() == wanted.indices.tolist()


def test_the_server_may_be_named_in_the_url(server: str, pool: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")  # nobody there: the URL must win
    place = server.removeprefix("http://")
    url = f"{pool.replace('//', '//me:mine@')}/shards?endpoint_override={place}&scheme=http"
    matrix = open_matrix(url)
    assert np.array_equal(matrix[:], PROBA)
    assert "mine" not in repr(matrix)


def test_the_variable_for_s3_alone_comes_first(server: str, pool: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", server)
    assert np.array_equal(open_matrix(f"{pool}/proba.npy")[:], PROBA)


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("s3://absent/shards", r"nothing at s3://absent/shards; check the address"),
        ("s3://pool/absent.npy", r"nothing at s3://pool/absent\.npy"),
        ("s3://pool/empty", r"s3://pool/empty is a folder without \.npy or \.parquet files"),
        ("s3://pool", "holds both"),
        ("s3://", "names no bucket"),
        ("s3://pool/bad", r"s3://pool/bad/1\.npy .* is cut short"),
        ("s3://pool/fortran", r"s3://pool/fortran/0\.npy is in Fortran order"),
        ("s3://pool/text/p.npy", r"s3://pool/text/p\.npy cannot be read as a plain \.npy array"),
        ("s3://pool/text/p.parquet", r"s3://pool/text/p\.parquet cannot be read as Parquet"),
        ("s3://pool/empty/notes.txt", r"s3://pool/empty/notes\.txt is neither \.npy nor \.parquet"),
    ],
)
@pytest.mark.usefixtures("pool")
def test_what_cannot_be_read_is_named(url: str, message: str) -> None:
    with pytest.raises(BadFile, match=message):
        open_matrix(url)


@pytest.mark.usefixtures("pool")
def test_rows_that_are_no_distributions_are_named() -> None:
    with pytest.raises(BadProbabilities, match="row 0 sums to 2"):
        tailwise.select("s3://pool/doubled", 3, score="entropy")


def test_wrong_credentials_are_told_without_showing_them(server: str, pool: str) -> None:
    requests.post(f"{server}/moto-api/reset-auth", data=b"0", timeout=20)  # from now on, it asks who is there
    try:
        with pytest.raises(BadFile, match=r"s3://pool/shards cannot be reached: .*AWS_ACCESS_KEY_ID") as refusal:
            open_matrix(f"{pool.replace('//', '//nobody:hush-hush@')}/shards")
        assert "hush-hush" not in str(refusal.value)
    finally:
        requests.post(f"{server}/moto-api/reset-auth", data=b"inf", timeout=20)


def test_an_object_that_vanishes_after_opening_is_named(server: str, pool: str) -> None:
    store = boto3.client(
        "s3", endpoint_url=server, aws_access_key_id="me", aws_secret_access_key="mine", region_name="us-east-1"
    )
    for key, content in (("gone/p.npy", npy(PROBA)), ("gone/p.parquet", parquet(PROBA))):
        store.put_object(Bucket="pool", Key=key, Body=content)
        matrix = open_matrix(f"{pool}/{key}")
        store.delete_object(Bucket="pool", Key=key)
        with pytest.raises(BadFile, match=f"s3://pool/{key} cannot be read"):
            matrix[:]


def test_the_command_line_takes_a_url(pool: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        run(["select", f"{pool}/shards", "--budget", "12", "--score", "entropy", "--balance", "1", "--json", "--quiet"])
        == 0
    )
    found = json.loads(capsys.readouterr().out)["indices"]
    assert found == tailwise.select(PROBA, 12, balance=1.0, score="entropy").indices.tolist()
    assert run(["select", f"{pool}/absent", "--budget", "12"]) == 3
    assert "nothing at s3://pool/absent" in capsys.readouterr().err
    assert run(["path", f"{pool}/dataset", "--budget", "12", "--lams", "0.5,1", "--json", "--quiet"]) == 0


@pytest.mark.usefixtures("pool")
def test_a_process_of_its_own_ends_without_a_word() -> None:
    command = [sys.executable, "-W", "error", "-m", "tailwise", "select", "s3://pool/dataset", "-b", "5", "-q"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert (done.returncode, done.stderr) == (0, "")
    assert len(done.stdout.split()) == 5
