"""`--check` fails on any difference; `generate` leaves exactly its own files behind."""

from __future__ import annotations

import pytest


@pytest.fixture
def generated(workshop):
    workshop.types('<definition name="A" value="1"/>')
    assert workshop.generate("--no-verify").status == 0
    return workshop


def check(workshop):
    before = {p: p.stat().st_mtime_ns for p in sorted(workshop.out.rglob("*"))}
    result = workshop.generate("--no-verify", "--check")
    assert before == {p: p.stat().st_mtime_ns for p in sorted(workshop.out.rglob("*"))}
    return result


def test_same(generated) -> None:
    result = check(generated)
    assert (result.status, result.err) == (0, "")


def test_changed_file(generated) -> None:
    path = generated.out / "case.py"
    path.write_text(path.read_text("utf-8") + "# by hand\n", "utf-8")
    result = check(generated)
    assert result.status == 1
    assert result.err.splitlines()[0] == f"{path}: differs"


def test_missing_file(generated) -> None:
    (generated.out / "py.typed").unlink()
    result = check(generated)
    assert result.status == 1
    assert result.err.splitlines()[0] == f"{generated.out / 'py.typed'}: missing"


def test_missing_folder(workshop) -> None:
    workshop.types('<definition name="A" value="1"/>')
    result = check(workshop)
    assert result.status == 1
    assert f"{workshop.out / 'case.py'}: missing" in result.err


def test_stale_files(generated) -> None:
    (generated.out / "extra.txt").write_text("", "utf-8")
    (generated.out / "sub").mkdir()
    (generated.out / "sub" / "deep.py").write_text("", "utf-8")
    result = check(generated)
    assert result.status == 1
    assert result.err.splitlines()[:2] == [
        f"{generated.out / 'extra.txt'}: stale",
        f"{generated.out / 'sub' / 'deep.py'}: stale",
    ]


def test_new_type_in_the_spec(generated) -> None:
    generated.types('<definition name="A" value="2"/>')
    result = check(generated)
    assert result.status == 1
    assert f"{generated.out / 'case.py'}: differs" in result.err
    # The other modules name the file's checksum too.
    assert f"{generated.out / 'registry.py'}: differs" in result.err


def test_byte_code_and_extensions_are_not_looked_at(generated) -> None:
    (generated.out / "__pycache__").mkdir()
    (generated.out / "__pycache__" / "case.pyc").write_bytes(b"")
    (generated.out / "case.so").write_bytes(b"")
    assert check(generated).status == 0


def test_stale_module_is_deleted(generated) -> None:
    (generated.spec / "case.xml").unlink()
    generated.write('<amqp name="other"><section name="s"><definition name="A" value="1"/>'
                    "</section></amqp>", "other.xml")  # fmt: skip
    assert generated.generate("--no-verify").status == 0
    assert not (generated.out / "case.py").exists()
    assert (generated.out / "other.py").exists()


@pytest.mark.parametrize("name", ["notes.txt", "mine.py"])
def test_files_of_others_are_not_deleted(generated, name: str) -> None:
    path = generated.out / name
    path.write_text("print('mine')\n", "utf-8")
    generated.types('<definition name="A" value="2"/>')
    result = generated.generate("--no-verify")
    assert result.status == 1
    assert result.err == (
        f"{path}: is not generated: it would be deleted, so nothing was written\n"
    )
    assert path.exists()
    assert "A: Final = 1" in (generated.out / "case.py").read_text("utf-8")


def test_unchanged_files_are_not_touched(generated) -> None:
    before = (generated.out / "types.py").stat().st_mtime_ns
    generated.types('<definition name="A" value="2"/>')
    assert generated.generate("--no-verify").status == 0
    assert (generated.out / "types.py").stat().st_mtime_ns == before
    assert "A: Final = 2" in (generated.out / "case.py").read_text("utf-8")
