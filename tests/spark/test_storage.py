import errno
import threading

from penstock.spark.store.folder import Folder


def test_only_the_first_writer_creates_a_file(tmp_path):
    folder = Folder(tmp_path / "new")
    assert folder.create("7.json", "first")
    assert not folder.create("7.json", "second")
    assert folder.read("7.json") == "first"
    assert [path.name for path in folder.path.iterdir()] == ["7.json"]  # nothing is left lying about


def test_of_many_writers_at_once_exactly_one_wins(tmp_path):
    folder = Folder(tmp_path)
    won = []
    start = threading.Barrier(16)

    def write(number):
        start.wait()
        if folder.create("entry", str(number)):
            won.append(str(number))

    threads = [threading.Thread(target=write, args=(number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert won == [folder.read("entry")]


def test_files_named_by_number_are_listed_in_numeric_order(tmp_path):
    folder = Folder(tmp_path)
    for name in ("10.json", "9.json", ".2.json.crc", "x.json", "3.tmp"):
        (tmp_path / name).write_text("")
    assert folder.ids(suffix=".json") == [9, 10]
    assert Folder(tmp_path / "absent").ids() == []
    assert Folder(tmp_path / "absent").read("x") is None


def test_without_hard_links_exactly_one_writer_wins_all_the_same(tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError(errno.ENOTSUP, "no links here")

    monkeypatch.setattr("os.link", refuse)
    folder = Folder(tmp_path)
    assert folder.create("7.json", "first")
    assert not folder.create("7.json", "second")
    assert folder.read("7.json") == "first"
    assert [path.name for path in tmp_path.iterdir()] == ["7.json"]
