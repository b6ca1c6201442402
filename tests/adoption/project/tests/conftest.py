"""What the template cannot know here: the name of a secret that CloudFormation makes."""

import pytest


@pytest.fixture
def onceq_variables() -> dict[str, str]:
    return {"FARM_SECRET": "farm"}
