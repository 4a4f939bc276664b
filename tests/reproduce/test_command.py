"""``penstock reproduce``, from the command line to its files."""

import json
import math
import subprocess
import sys

import pytest

from lab.reproduce.catalogue import FIGURES, Entry
from lab.reproduce.figure import Figure, Series
from penstock.cli import main
from penstock.demo.claim import Claim

PNG = b"\x89PNG\r\n"


def broken(*, full):
    """A figure that shows something else than it claims."""
    settings = {"seed": 7, "size": "full" if full else "quick"}
    series = (Series("curve", (0.0, 1.0), (1.0, math.nan)), Series("bars", ("a", "b"), (1.0, 2.0), "name", "value"))
    return Figure("fake/broken", settings, series, (Claim.at_most("error [worst] | all", 0.2, 0.1),))


@pytest.fixture
def broken_figure(monkeypatch):
    monkeypatch.setitem(sys.modules, "fake_figures", sys.modules[__name__])
    monkeypatch.setitem(FIGURES, "fake/broken", Entry(title="A fake", home="fake_figures:broken"))


@pytest.fixture
def small_catalogue(monkeypatch):
    """A catalogue of one figure: some of the others take a minute each."""
    for name in list(FIGURES):
        if name != "sampling/example1":
            monkeypatch.delitem(FIGURES, name)


def test_the_list_names_every_figure(capsys):
    assert main(["reproduce", "--list"]) == 0

    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == list(FIGURES)
    assert "sampling/example1" in FIGURES


def test_the_list_waits_for_no_heavy_package():
    code = (
        "import sys; from penstock.cli import main; main(['reproduce', '--list']); "
        "print({'matplotlib', 'numpy', 'pyspark', 'rich', 'scipy'} & set(sys.modules))"
    )

    listed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert listed.stdout.splitlines()[-1] == "set()"


def test_an_unknown_figure_is_answered_with_the_known_ones(capsys):
    assert main(["reproduce", "sampling/example9"]) == 2

    told = capsys.readouterr().err
    assert "there is no figure 'sampling/example9'" in told
    assert all(f"\n  {name}" in told for name in FIGURES)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "reproduce takes PAPER/FIGURE, --report FILE or both, or else --list; for the names"),
        (["sampling/example1", "--list"], "reproduce takes PAPER/FIGURE"),
        (["--list", "--json", "figure.json"], "--json and --plot are for one figure without --report; name it, as in"),
        (["--report", "report"], "the report must be a file that ends in .md, got 'report'; its plots"),
        (["sampling/example1", "--json", "/proc/none/figure.json"], "cannot write: "),
        (["sampling/example1", "--plot", "figure.none"], "cannot plot to 'figure.none': "),
    ],
)
def test_what_cannot_be_done_is_said_and_ends_in_2(arguments, message, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    assert main(["reproduce", *arguments]) == 2

    assert capsys.readouterr().err.startswith(f"penstock: {message}")
    assert not list(tmp_path.iterdir())


def test_a_figure_is_written_as_json_and_as_a_plot_in_new_folders(tmp_path, capsys):
    json_path, plot_path = tmp_path / "a" / "figure.json", tmp_path / "b" / "figure.png"

    assert main(["reproduce", "sampling/example1", "--json", str(json_path), "--plot", str(plot_path)]) == 0

    figure = json.loads(json_path.read_text(encoding="utf-8"))
    assert list(figure) == ["figure", "settings", "series", "claims"]
    assert figure["figure"] == "sampling/example1"
    assert all(list(series) == ["name", "x", "y"] for series in figure["series"])
    assert all(len(series["x"]) == len(series["y"]) > 0 for series in figure["series"])
    assert all(list(claim) == ["text", "value", "bound", "held"] for claim in figure["claims"])
    assert {claim["held"] for claim in figure["claims"]} == {True}
    assert plot_path.read_bytes().startswith(PNG)
    assert f"seeds: seed {figure['settings']['seed']}" in capsys.readouterr().out


def test_example_1_reports_what_was_placed(tmp_path):
    path = tmp_path / "figure.json"
    main(["reproduce", "sampling/example1", "--json", str(path)])

    by_name = {s["name"]: dict(zip(s["x"], s["y"], strict=True)) for s in json.loads(path.read_text())["series"]}

    assert by_name["effective keep rate"] == pytest.approx({"q1": 0.5, "q2": 0.8})
    edges = {"S→A": 0.8, "A→B": 0.625, "A→C": 1.0, "B→q1": 1.0, "C→q2": 1.0}
    assert by_name["keep rate placed on each edge"] == pytest.approx(edges)
    assert min(by_name["same effective rates"].values()) >= by_name["SetSamplingRate"][0.8] - 1e-12


@pytest.mark.parametrize(("size", "shown"), [([], "quick"), (["--quick"], "quick"), (["--full"], "full")])
def test_a_claim_that_is_not_held_ends_in_1(broken_figure, size, shown, capsys):
    assert main(["reproduce", "fake/broken", *size]) == 1

    told = capsys.readouterr().out
    assert "not held" in told
    assert "error [worst] | all" in told
    assert f"size: {shown}" in told


def test_what_is_not_finite_becomes_null(broken_figure, tmp_path):
    main(["reproduce", "fake/broken", "--json", str(tmp_path / "figure.json")])

    assert json.loads((tmp_path / "figure.json").read_text())["series"][0]["y"] == [1.0, None]


def test_a_missing_matplotlib_names_the_cure(monkeypatch, tmp_path, capsys):
    monkeypatch.setitem(sys.modules, "matplotlib", None)

    assert main(["reproduce", "sampling/example1", "--plot", str(tmp_path / "figure.png")]) == 2

    assert "run: pip install 'penstock[plot]'" in capsys.readouterr().err


def test_the_report_holds_every_figure_with_its_plot(small_catalogue, broken_figure, tmp_path):
    path = tmp_path / "report.md"

    assert main(["reproduce", "--report", str(path)]) == 1

    page = path.read_text(encoding="utf-8")
    claims = sum(len(entry.compute(full=False).claims) for entry in FIGURES.values())
    assert f"Figures: {len(FIGURES)}; claims held: {claims - 1} of {claims}." in page
    assert "| error [worst] \\| all | 0.2 | <= 0.1 | **not held** |" in page
    assert "| seed | 7 |" in page
    for name in FIGURES:
        plot = f"report/{name.replace('/', '-')}.png"
        assert f"## {name}\n" in page
        assert f"]({plot})" in page
        assert (tmp_path / plot).read_bytes().startswith(PNG)


def test_one_figure_can_be_renewed_on_the_page(small_catalogue, broken_figure, tmp_path):
    path = tmp_path / "report.md"
    main(["reproduce", "--report", str(path)])
    before = path.read_text(encoding="utf-8")

    assert main(["reproduce", "fake/broken", "--full", "--report", str(path)]) == 1

    after = path.read_text(encoding="utf-8")
    assert "| size | quick |" in before
    assert "| size | quick |" not in after
    assert "Printed by `penstock reproduce fake/broken --full`." in after
    assert all(f"## {name}\n" in after for name in FIGURES)


def test_the_report_is_the_same_to_the_byte_each_time(small_catalogue, tmp_path):
    written = []
    for _ in range(2):
        assert main(["reproduce", "--report", str(tmp_path / "report.md")]) == 0
        written.append({path.name: path.read_bytes() for path in tmp_path.rglob("*.*")})

    assert written[0] == written[1]


@pytest.mark.parametrize(
    ("claim", "held"),
    [
        (Claim.at_most("x", 1.0, 1.0), True),
        (Claim.at_most("x", 1.1, 1.0), False),
        (Claim.at_least("x", 1.0, 1.0), True),
        (Claim.at_least("x", 0.9, 1.0), False),
        (Claim.equal("x", 1.05, 1.0, tolerance=0.1), True),
        (Claim.equal("x", 1.2, 1.0, tolerance=0.1), False),
        (Claim.at_most("x", math.nan, 1.0), False),
        (Claim.at_least("x", math.nan, 1.0), False),
        (Claim.equal("x", math.nan, 1.0, tolerance=0.1), False),
    ],
)
def test_a_claim_is_held_by_its_value_alone(claim, held):
    assert claim.held is held
