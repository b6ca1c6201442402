"""samconfig.toml: what `sam` is called with, and nothing that must stay secret."""

from __future__ import annotations

import re

from template.reading import ROOT, load_samconfig, load_template

SECRET = re.compile(
    r"AKIA[0-9A-Z]{16}|ASIA[0-9A-Z]{16}|(secret|password|passwd|token|api_?key|credential)\w*\s*=", re.IGNORECASE
)


def test_nothing_secret_is_checked_in() -> None:
    """No access key, and no setting or parameter that is named like a secret."""
    assert not SECRET.search((ROOT / "samconfig.toml").read_text())
    assert not [name for name in load_template()["Parameters"] if SECRET.search(f"{name}=")]
    assert SECRET.search('parameter_overrides = ["ApiKey=x"]'), "the pattern finds nothing"


def test_dev_and_prod_are_stacks_of_their_own() -> None:
    """Two environments never share a stack, and both may create roles."""
    config = load_samconfig()
    deployments = [config[name]["deploy"]["parameters"] for name in ("default", "dev", "prod")]
    assert len({deployment["stack_name"] for deployment in deployments}) == 3
    assert all(deployment["capabilities"] == "CAPABILITY_IAM" for deployment in deployments)


def test_prod_asks_before_it_changes() -> None:
    """A change of production is shown and confirmed first."""
    assert load_samconfig()["prod"]["deploy"]["parameters"]["confirm_changeset"] is True


def test_builds_are_fresh_and_parallel() -> None:
    """A cached build could hold a dependency that the pins no longer name."""
    config = load_samconfig()
    for name in ("default", "dev", "prod"):
        assert config[name]["build"]["parameters"] == {"cached": False, "parallel": True}
