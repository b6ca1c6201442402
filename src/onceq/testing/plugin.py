"""The pytest plugin, registered as an entry point: fixtures ``onceq_app``, ``onceq_env`` and more.

Options of the ini file: ``onceq_app`` (``module:name`` of the application, ``app:app`` if not given) and
``onceq_template`` (the template; without it the ``template.yaml`` of the root folder or of one above). What
`onceq.testing.environment` takes beside them are fixtures to override in a ``conftest.py``: ``onceq_parameters`` and
``onceq_variables``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from onceq.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Mapping
    from pathlib import Path

    from onceq.application import App
    from onceq.testing.recorder import EffectRecorder
    from onceq.testing.world import Environment


def pytest_addoption(parser: pytest.Parser) -> None:
    """Make the options of the ini file known."""
    parser.addini("onceq_app", "module:name of the onceq App", default="app:app")
    parser.addini("onceq_template", "the template whose tables and queues tests run on", default="")


@pytest.fixture(scope="session")
def onceq_template(pytestconfig: pytest.Config) -> Path | None:
    """The template: the ini option's, else the nearest ``template.yaml``; ``None`` where there is none."""
    from onceq.testing.ground import find_template  # noqa: PLC0415 - a run without these fixtures loads no moto

    given = pytestconfig.getini("onceq_template")
    return pytestconfig.rootpath / given if given else find_template(pytestconfig.rootpath)


@pytest.fixture(scope="session")
def onceq_app(pytestconfig: pytest.Config, onceq_template: Path | None) -> App:
    """The application that ``src/app.py`` composes; override this fixture for another one."""
    from onceq.loading import load_app  # noqa: PLC0415 - as above

    try:
        return load_app(pytestconfig.getini("onceq_app"), onceq_template or pytestconfig.rootpath / "template.yaml")
    except ConfigurationError as error:
        told = str(error).removeprefix("--app ")
        pytest.fail(f"the ini option onceq_app, or a fixture onceq_app of yours, names the App: {told}", pytrace=False)


@pytest.fixture(scope="session")
def onceq_parameters() -> Mapping[str, object]:
    """Values for the template's parameters, instead of their defaults: none. Override it."""
    return {}


@pytest.fixture
def onceq_variables() -> Mapping[str, str]:
    """Environment variables, instead of the template's or beside them: none. Override it."""
    return {}


@pytest.fixture
def onceq_env(
    onceq_app: App,
    onceq_template: Path | None,
    onceq_parameters: Mapping[str, object],
    onceq_variables: Mapping[str, str],
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Environment]:
    """Locked moto with the template's resources, the time standing still, and the application to deliver to."""
    from onceq.testing.ground import environment, hand_over  # noqa: PLC0415 - as above

    with environment(
        onceq_app, template=onceq_template, parameters=onceq_parameters, variables=onceq_variables
    ) as opened:
        hand_over(monkeypatch)
        yield opened


@pytest.fixture
def onceq_recorder() -> EffectRecorder:
    """A recorder to stand in for what a job calls outside."""
    from onceq.testing.recorder import EffectRecorder  # noqa: PLC0415 - as above

    return EffectRecorder()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add the records and the timeline to the report of a test that failed in an environment."""
    report = yield
    opened = getattr(item, "funcargs", {}).get("onceq_env")
    # After a proof, which says itself what happened, the environment is as good as new.
    if report.when == "call" and report.failed and getattr(getattr(opened, "timeline", None), "entries", None):
        report.sections.append(("onceq: what happened", _told(opened)))
    return report


def _told(opened: Any) -> str:
    try:
        told: str = opened.report()
    except Exception as error:  # noqa: BLE001 - a report must not cost the run of all other tests
        told = f"the report failed: {type(error).__name__}: {error}"
    return told
