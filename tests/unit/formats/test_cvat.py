from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree
from zipfile import ZIP_DEFLATED, ZipFile

import pytest
from PIL import Image

from tailwise.errors import BadFile, BadInput
from tailwise.formats import FORMATS, Record, guess_format

from .conftest import CLASSES, Pictures

IMAGENET = FORMATS["cvat-imagenet"]
XML = FORMATS["cvat-xml"]

ANNOTATIONS = """<?xml version="1.0" encoding="utf-8"?>
<annotations>
  <version>1.1</version>
  <meta>
    <task>
      <id>7</id>
      <name>pets</name>
      <size>4</size>
      <mode>annotation</mode>
      <labels>
        <label><name>dog</name><color>#ff0000</color><type>tag</type><attributes></attributes></label>
        <label><name>cat &amp; co</name><color>#00ff00</color><type>any</type><attributes></attributes></label>
        <label><name>unused</name><color>#0000ff</color><type>any</type><attributes></attributes></label>
      </labels>
      <owner><username>admin</username><email>admin@example.org</email></owner>
    </task>
    <dumped>2023-11-14 22:13:20.000000+00:00</dumped>
  </meta>
  <image id="0" name="sub/1.jpg" width="640" height="480">
    <tag label="dog" source="manual">
    </tag>
  </image>
  <image id="1" name="2.jpg" subset="train" task_id="7" width="640" height="480">
    <tag label="cat &amp; co" source="manual"><attribute name="sure">yes</attribute></tag>
    <box label="dog" source="manual" occluded="0" xtl="1.0" ytl="1.0" xbr="2.0" ybr="2.0" z_order="0"></box>
  </image>
  <image id="2" name="3.jpg" subset="default" width="640" height="480">
  </image>
  <image id="3" name="4.jpg" width="640" height="480">
    <tag label="dog" source="manual"></tag>
    <tag label="unused" source="manual"></tag>
  </image>
  <image id="4" name="5.jpg" width="640" height="480">
    <tag label="dog" source="auto"></tag>
  </image>
</annotations>
"""


def packed(path: Path, files: dict[str, bytes | str]) -> Path:
    with ZipFile(path, "w", ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return path


def test_annotations_as_cvat_exports_them_are_read(tmp_path: Path) -> None:
    (tmp_path / "annotations.xml").write_text(ANNOTATIONS, encoding="utf-8")
    zipped = packed(tmp_path / "task.zip", {"annotations.xml": ANNOTATIONS, "images/1.jpg": b""})
    for path in (tmp_path / "annotations.xml", zipped, tmp_path):
        assert guess_format(path) == "cvat-xml"
        loaded = XML.read(path, ())
        assert loaded.records == [
            Record("sub/1.jpg", "dog"),
            Record("2.jpg", "cat & co", split="train"),
            Record("3.jpg", None),
        ]
        assert loaded.classes == ("dog", "cat & co", "unused")
        assert loaded.problems == [
            "4.jpg: tags dog, unused, but an image has one class here",
            "5.jpg: the tag dog was made by a model (source=auto), not by a person",
        ]


def test_a_tag_by_a_person_counts_beside_one_by_a_model(tmp_path: Path) -> None:
    path = tmp_path / "annotations.xml"
    tags = '<tag label="dog" source="auto"/><tag label="cat" source="manual"/><tag label="eel" source="auto"/>'
    path.write_text(f'<annotations><image name="1.jpg">{tags}</image></annotations>', encoding="utf-8")
    loaded = XML.read(path, ())
    assert loaded.records == [Record("1.jpg", "cat")]
    assert [problem.split(" was made")[0] for problem in loaded.problems] == [
        "1.jpg: the tag dog",
        "1.jpg: the tag eel",
    ]


BOMB = """<?xml version="1.0"?>
<!DOCTYPE lolz [<!ENTITY a "ha"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;&a;&a;"><!ENTITY c "&b;&b;&b;&b;&b;&b;&b;&b;">]>
<annotations><image name="&c;"/></annotations>"""
OUTSIDE = """<?xml version="1.0"?>
<!DOCTYPE x [<!ENTITY secret SYSTEM "file:///etc/passwd">]>
<annotations><image name="&secret;"/></annotations>"""


@pytest.mark.parametrize(
    "text", [BOMB, OUTSIDE, '<!DOCTYPE annotations SYSTEM "http://example.org/x.dtd"><annotations/>']
)
def test_entities_are_never_expanded(text: str, tmp_path: Path) -> None:
    path = tmp_path / "annotations.xml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(BadFile, match="has a DOCTYPE, which is not read"):
        XML.read(path, ())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no element found"),
        ("<annotations><image", "is not valid XML: .*cut off"),
        ("<annotations>&undefined;</annotations>", "undefined entity"),
        ("<html></html>", "its root is <html>, not <annotations>"),
        ('<?xml version="1.0" encoding="utf-8"?><annotations>\xe9</annotations>', "is not valid XML: .*invalid token"),
    ],
)
def test_strange_xml_is_refused(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "annotations.xml"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(BadFile, match=message):
        XML.read(path, ())


@pytest.mark.parametrize(
    ("image", "problem"),
    [
        ("<image/>", "None: an <image> without a name"),
        ('<image name="1.jpg"><tag/></image>', "1.jpg: a <tag> without a label"),
        ('<image name="1.jpg"><answer kind="x"/></image>', "1.jpg: an <answer> of the kind 'x'"),
        ('<image name="1.jpg"><tag label="a" time="now"/></image>', "1.jpg: 'now' is not a time"),
        ('<image name="1.jpg"><prediction label="a"/></image>', "1.jpg: '' is not a probability"),
    ],
)
def test_an_image_that_cannot_be_read_does_not_stop_the_others(image: str, problem: str, tmp_path: Path) -> None:
    path = tmp_path / "annotations.xml"
    path.write_text(f'<annotations>{image}<image name="2.jpg"/></annotations>', encoding="utf-8")
    loaded = XML.read(path, ())
    assert loaded.records == [Record("2.jpg", None)]
    assert loaded.problems[0].startswith(problem)


def test_an_archive_without_annotations_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadFile, match=r"holds no annotations\.xml; export it from CVAT as"):
        XML.read(packed(tmp_path / "task.zip", {"images/1.jpg": b""}), ())


def test_class_folders_that_were_unpacked_are_read(pictures: Pictures) -> None:
    pictures.add("dog/1.png", 1)
    pictures.add("no_label/2.png", 2)
    assert guess_format(pictures.root) == "cvat-imagenet"
    assert {(r.path, r.label) for r in IMAGENET.read(pictures.root, ()).records} == {("1.png", "dog"), ("2.png", None)}


def test_a_video_is_told(tmp_path: Path) -> None:
    path = tmp_path / "annotations.xml"
    path.write_text('<annotations><track id="0" label="dog"/></annotations>', encoding="utf-8")
    assert "tracks of videos" in XML.read(path, ()).problems[0]


def test_the_xml_has_what_cvat_wants(records: list[Record], pictures: Pictures, tmp_path: Path) -> None:
    out = XML.write(records, tmp_path / "annotations.xml", pictures.source, CLASSES)
    root = ElementTree.parse(out).getroot()
    assert root.findtext("version") == "1.1"
    assert [label.text for label in root.findall("./meta/task/labels/label/name")] == list(CLASSES)
    images = root.findall("image")
    assert root.findtext("./meta/task/size") == str(len(images)) == "15"  # of one image there are two answers
    assert [image.get("id") for image in images] == [str(number) for number in range(15)]
    assert {(image.get("width"), image.get("height")) for image in images} == {("6", "4")}
    assert {tag.get("label") for tag in root.iter("tag")} <= set(CLASSES)  # CVAT refuses other labels


def test_the_size_of_an_image_is_that_of_the_upright_one(pictures: Pictures, tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    pictures.root.mkdir()
    Image.new("RGB", (30, 20)).save(pictures.root / "turned.jpg", exif=exif)
    out = XML.write([Record("turned.jpg", "cat")], tmp_path / "a.xml", pictures.source, ("cat",))
    image = ElementTree.parse(out).getroot().find("image")
    assert image is not None
    assert (image.get("width"), image.get("height")) == ("20", "30")


def test_a_name_that_xml_cannot_carry_is_refused(pictures: Pictures, tmp_path: Path) -> None:
    pictures.add("a\x01.png", 1)
    with pytest.raises(BadInput, match=r"U\+0001, which XML cannot carry; export to another format"):
        XML.write([Record("a\x01.png", "cat")], tmp_path / "a.xml", pictures.source, ("cat",))


def test_an_archive_of_class_folders_as_cvat_exports_it_is_read(pictures: Pictures, tmp_path: Path) -> None:
    image = pictures.add("x.png", 1).read_bytes()
    files: dict[str, bytes | str] = {"dog/1.png": image, "cat/sub/2.png": b"2", "no_label/3.png": b"3"}
    archive = packed(tmp_path / "task.zip", files)
    assert guess_format(archive) == "cvat-imagenet"
    loaded = IMAGENET.read(archive, ())
    assert {(r.path, r.label) for r in loaded.records} == {("1.png", "dog"), ("sub/2.png", "cat"), ("3.png", None)}
    assert loaded.classes == ("cat", "dog")
    assert pictures.hashed(Record("x.png", None)).sha256 in {record.sha256 for record in loaded.records}


def test_the_lists_that_cvat_exports_without_images_are_read(tmp_path: Path) -> None:
    texts: dict[str, bytes | str] = {
        "synsets.txt": "dog\ncat\nno image\n",
        "default.txt": '1.jpg 1\n"a b/2 3".jpg 0\n4.jpg \n5.jpg 0 1\n',
        "val.txt": "6.jpg 0\n",
    }
    archive = packed(tmp_path / "task.zip", texts)
    unpacked = tmp_path / "unpacked"
    unpacked.mkdir()
    for name, text in texts.items():
        (unpacked / name).write_text(str(text), encoding="utf-8")
    assert guess_format(unpacked) == "cvat-imagenet"
    for path in (archive, unpacked):
        loaded = IMAGENET.read(path, ())
        assert loaded.records == [
            Record("1.jpg", "cat"),
            Record("a b/2 3.jpg", "dog"),
            Record("4.jpg", None),
            Record("6.jpg", "dog", split="val"),
        ]
        assert loaded.problems == ["5.jpg: 2 labels, but an image has one class here"]
        assert loaded.classes == ("dog", "cat", "no image")


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"default.txt": "1.jpg 0\n"}, r"no synsets\.txt"),
        ({"default.txt": "1.jpg 2\n", "synsets.txt": "a\nb\n"}, "line 1 of default.txt names class 2, but .* has 2"),
        ({"default.txt": '"1.jpg 2\n', "synsets.txt": "a\n"}, "line 1 of default.txt reads"),
        ({"default.txt": b"\xff", "synsets.txt": "a\n"}, "line 1 of .*default.txt is not UTF-8"),
        ({"readme.md": "hello"}, "neither class folders nor lists"),
    ],
)
def test_a_strange_archive_is_refused(files: dict[str, bytes | str], message: str, tmp_path: Path) -> None:
    with pytest.raises(BadFile, match=message):
        IMAGENET.read(packed(tmp_path / "task.zip", files), ())


def test_a_name_that_climbs_out_of_an_archive_is_told(tmp_path: Path) -> None:
    loaded = IMAGENET.read(packed(tmp_path / "task.zip", {"dog/../../../evil.png": b"x", "dog/1.png": b"y"}), ())
    assert [(record.path, record.label) for record in loaded.records] == [("1.png", "dog")]
    assert loaded.problems == ["dog/../../../evil.png: it leads out of the archive"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["task.zip"]


def test_a_bomb_in_an_archive_does_not_fill_the_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tailwise.formats import reading

    monkeypatch.setattr(reading, "MOST_MEMBER", 1 << 16)  # a limit that a test can afford to pass
    bomb = packed(tmp_path / "bomb.zip", {"synsets.txt": b"a" * (1 << 17), "default.txt": ""})
    images = packed(tmp_path / "images.zip", {"cat/1.png": b"a" * (1 << 17)})
    for archive in (bomb, images):
        with pytest.raises(BadFile, match="unpacks to more than the 65,536 bytes allowed"):
            IMAGENET.read(archive, ())


def test_a_name_that_cvat_cannot_read_in_a_list_is_left_out_of_it(pictures: Pictures, tmp_path: Path) -> None:
    names = ("1.png", 'a"b.png', "c\nd.png")
    for number, name in enumerate(names):
        pictures.add(name, number)
    records = [pictures.hashed(Record(name, "cat")) for name in names]
    out = IMAGENET.write(records, tmp_path / "out", pictures.source, ("cat",))
    assert [record.path for record in IMAGENET.read(out / "annotations.zip", ()).records] == ["1.png"]
    assert IMAGENET.read(out, ()).records == records


def test_both_archives_of_an_export_are_as_cvat_takes_them(pictures: Pictures, tmp_path: Path) -> None:
    for number, path in enumerate(("a/1.png", "b/1.png", "b/2 3.png", "4.png")):
        pictures.add(path, number)
    records = [
        Record("a/1.png", "dog"),
        Record("b/1.png", "dog", split="val"),
        Record("b/2 3.png", "cat"),
        Record("4.png", None, kind="other", annotator="ann"),
    ]
    out = IMAGENET.write(records, tmp_path / "out", pictures.source, ("dog", "cat"))
    with ZipFile(out / "imagenet.zip") as archive:
        assert sorted(archive.namelist()) == ["cat/2 3.png", "dog/1-2.png", "dog/1.png", "no_label/4.png"]
        assert archive.testzip() is None
    lists = IMAGENET.read(out / "annotations.zip", ())
    assert [(record.path, record.label, record.split) for record in lists.records] == [
        ("a/1.png", "dog", ""),
        ("b/2 3.png", "cat", ""),
        ("4.png", None, ""),
        ("b/1.png", "dog", "val"),
    ]
    assert lists.classes == ("dog", "cat")
