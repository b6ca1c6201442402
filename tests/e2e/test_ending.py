"""Nothing that a deployment starts outlives it, however it ends."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from kit.stack import eventually
from onceq.local import child_environment

TESTS = Path(__file__).resolve().parents[1]
# A function that is in the middle of something.
PROGRAM = """
import io, json, signal, zipfile
import boto3, psutil
from kit.deployment import end_as_ctrl_c_does, serving_cloud
from kit.stack import eventually

end_as_ctrl_c_does()
code = io.BytesIO()
with serving_cloud() as cloud:
    busy = cloud.home / "busy"
    with zipfile.ZipFile(code, "w") as file:
        file.writestr("busy.py", f"import time\\ndef handle(*_):\\n open({str(busy)!r}, 'w')\\n time.sleep(600)")
    known = {"aws_access_key_id": "test", "aws_secret_access_key": "test", "verify": str(cloud.certificate)}
    iam, functions = (
        boto3.client(name, endpoint_url=cloud.endpoint, region_name="us-east-1", **known) for name in ("iam", "lambda")
    )
    trust = {"Effect": "Allow", "Principal": {"Service": "lambda.amazonaws.com"}, "Action": "sts:AssumeRole"}
    document = json.dumps({"Version": "2012-10-17", "Statement": [trust]})
    role = iam.create_role(RoleName="busy", AssumeRolePolicyDocument=document)["Role"]["Arn"]
    described = {"Runtime": "python3.13", "Handler": "busy.handle", "Role": role, "Timeout": 900}
    functions.create_function(FunctionName="busy", Code={"ZipFile": code.getvalue()}, **described)
    functions.invoke(FunctionName="busy", InvocationType="Event", Payload=b"{}")
    me = psutil.Process()
    eventually(busy.exists)
    print(cloud.home.parent, *(child.pid for child in me.children(recursive=True)), flush=True)
    signal.pause()
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_nothing_outlives_the_run(number: signal.Signals) -> None:
    """The server and a function that is running end with whoever started them; but for SIGKILL the files go, too."""
    environment = child_environment(dict(os.environ))
    environment["PYTHONPATH"] += os.pathsep + str(TESTS)
    with subprocess.Popen([sys.executable, "-c", PROGRAM], env=environment, stdout=subprocess.PIPE) as run:
        assert run.stdout is not None
        folder, *pids = run.stdout.readline().decode().split()
        assert len(pids) >= 2
        run.send_signal(number)
        run.wait(timeout=60)

    eventually(lambda: not any(is_running(int(pid)) for pid in pids), seconds=30)
    assert Path(folder).exists() is (number == signal.SIGKILL)
    shutil.rmtree(folder, ignore_errors=True)


def is_running(pid: int) -> bool:
    """Say whether a process is there and no zombie."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
