"""The documentation, checked against the code."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import click

from inferlab.cli.benchmark import command
from inferlab.views import text

ROOT = Path(__file__).parent.parent
BENCHMARK = (ROOT / "docs/benchmark.md").read_text()
ENGINES = (ROOT / "docs/engines.md").read_text()


def test_every_option_of_benchmark_is_documented_and_no_other() -> None:
    real = {name for param in command.params if param.param_type_name == "option" for name in param.opts}
    documented = set(re.findall(r"`(-{1,2}[\w-]+)`", "\n".join(re.findall(r"^\| (`-.*?) \|", BENCHMARK, re.M))))
    assert documented == real


def test_every_option_of_profile_is_documented_and_no_other() -> None:
    from inferlab.cli.profile import command as profile

    page = (ROOT / "docs/profiles.md").read_text()
    # Earlier spellings still work and are not documented.
    options = [param for param in profile.params if isinstance(param, click.Option) and not param.hidden]
    real = {name for option in options for name in (*option.opts, *option.secondary_opts)}
    rows = re.findall(r"^\| (`-.*?) \|", page, re.M)
    assert {name for row in rows for name in re.findall(r"`(-{1,2}[\w-]+)`", row)} == real


def test_every_option_of_optimize_is_documented_and_no_other() -> None:
    from inferlab.cli.optimize import command as optimize

    page = (ROOT / "docs/optimize.md").read_text()
    options = [param for param in optimize.params if param.param_type_name == "option"]
    (table,) = re.findall(r"^\| option \| meaning \|\n(.*?)\n\n", page, re.M | re.S)
    rows = re.findall(r"^\| (`-.*?) \|", table, re.M)
    real = {name for option in options for name in (*option.opts, *option.secondary_opts)}
    assert {name for row in rows for name in re.findall(r"`(-{1,2}[\w-]+)`", row)} == real


def test_the_recipe_of_the_documentation_is_one() -> None:
    from inferlab.optimizing import recipes

    (text,) = re.findall(r"```yaml\n(.*?)```", (ROOT / "docs/optimize.md").read_text(), re.S)
    recipe = recipes.loads(text, "docs/optimize.md")
    assert recipe.pruning is not None and recipe.pruning.scope == "global"
    assert recipe.quantization is not None and recipe.quantization.keep_sensitive == 2


def test_the_example_of_an_optimised_version_runs_and_prints_what_it_says(tmp_path: Path) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs/optimize.md").read_text(), re.S)
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert set(re.findall(r"# -> (.*)$", code, re.M)) <= set(done.stdout.splitlines()), done.stdout
    assert {one.name for one in tmp_path.iterdir()} == {
        f"{stem}.{ending}" for stem in ("small", "again") for ending in ("onnx", "recipe.yaml")
    }


def test_every_address_of_the_http_api_is_documented_and_no_other() -> None:
    from fastapi import FastAPI

    from inferlab.web import api

    app = FastAPI()
    app.include_router(api.router(None))
    real = {f"{method.upper()} {path}" for path, methods in app.openapi()["paths"].items() for method in methods}
    rows = re.findall(r"^\| `([A-Z]+ /\S+)` \|", (ROOT / "docs/http-api.md").read_text(), re.M)
    assert set(rows) == real
    assert len(rows) == len(real)


def test_the_example_of_a_profile_runs_and_prints_what_it_says(tmp_path: Path) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs/profiles.md").read_text(), re.S)
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == re.findall(r"# -> (.*)$", code, re.M)
    assert {one.name for one in tmp_path.iterdir()} == {"layers.html", "report.html"}


def test_every_finding_is_documented_and_has_a_sentence() -> None:
    (findings,) = re.findall(r"^## Findings\n(.*?)^## ", BENCHMARK, re.M | re.S)
    documented = set(re.findall(r"^\| `([a-z][a-z-]+)` \|", findings, re.M))
    assert documented == set(text._FINDINGS)


def test_the_engine_in_the_documentation_runs_and_is_right(tmp_path: Path) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", ENGINES, re.S)
    file = tmp_path / "my_engine.py"
    file.write_text(code)
    done = subprocess.run(
        [
            Path(sys.executable).parent / "inferlab",
            "benchmark",
            "demo:mlp",
            "-e",
            f"{file}:Numpy",
            "-t",
            "0.2",
            "-w",
            "0",
            "--processes",
            "1",
        ],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert "Output Check: match" in done.stdout


def test_the_python_examples_of_the_readme_run_and_print_what_they_should(tmp_path: Path) -> None:
    measured, exported = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.S)
    for code, printed in ((exported, "('batch', 8) True\n"), (measured, "2 batch size (items)\n")):
        done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
        assert done.stdout.endswith(printed), done.stderr


def test_every_make_target_of_the_readme_exists() -> None:
    readme, makefile = (ROOT / "README.md").read_text(), (ROOT / "Makefile").read_text()
    named = set(re.findall(r"\bmake (\w+)", readme))
    assert {"demo", "test"} <= named
    assert all(re.search(rf"^{target}:", makefile, re.M) for target in named)


def test_every_link_to_a_file_leads_somewhere() -> None:
    for page in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *ROOT.glob("docs/*.md")]:
        for link in re.findall(r"\]\(([^)#:]+?)(?:#[^)]*)?\)", page.read_text()):
            assert (page.parent / link).exists(), f"{page.name} links to {link}"


def test_the_examples_of_the_python_api_run_and_print_what_they_say(tmp_path: Path) -> None:
    pages = [(ROOT / "docs" / name).read_text() for name in ("getting-started.md", "api.md")]
    examples = [code for page in pages for code in re.findall(r"```python\n(.*?)```", page, re.S)]
    assert len(examples) == 8
    for code in examples:
        done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        answers = re.findall(r"# -> (.*)$", code, re.M)
        assert answers and set(answers) <= set(done.stdout.splitlines()), done.stdout


def test_the_documentation_site_is_built_without_a_warning(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "sphinx", "--fail-on-warning", "--keep-going", "--quiet", ROOT / "docs", tmp_path],
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (0, "")
    commands = (tmp_path / "reference" / "cli.html").read_text()
    addresses = (tmp_path / "reference" / "http.html").read_text()
    assert "--thread_pinning" in commands and "/projects/{project_id}/benchmarks" in addresses
    # Whoever reads it offline needs nothing of another host.
    loaded = re.findall(r'<(?:script|link|img)[^>]+(?:src|href)="(https?://[^"]+)"', commands + addresses)
    assert loaded == []


def test_releases_are_named_of_engines_that_have_some() -> None:
    from inferlab.engines.specs import spec_of

    pages = "".join(page.read_text() for page in (*(ROOT / "docs").rglob("*.md"), ROOT / "README.md"))
    for name in set(re.findall(r"\b([a-z][a-z-]*)==", pages)):
        assert spec_of(f"{name}==1.0").label == f"{name}==1.0"


def test_series_gates_and_clusters_are_not_promised_where_there_are_none() -> None:
    from inferlab.cli import capacity, compare, generate, profile

    def help_of(options: Sequence[click.Parameter]) -> str:
        return next(str(one.help) for one in options if isinstance(one, click.Option) and one.name == "label")

    assert "series and gates" in help_of(command.params)
    assert "series" not in help_of(generate.command.params)
    for module in (compare, capacity, profile, generate):
        assert all("--cluster" not in option.opts for option in module.command.params)
