import json
import os
import urllib.request
from dataclasses import dataclass

from aws_lambda_powertools import Logger
from aws_lambda_powertools.utilities import parameters

from onceq import Context, Reject, job

logger = Logger()


@dataclass(frozen=True)
class Video:
    video_id: str
    account: str
    minutes: int


def farm(video_id: str, *, idempotency_key: str) -> str:
    token = parameters.get_secret(os.environ["FARM_SECRET"])
    headers = {"Authorization": f"Bearer {token}", "Idempotency-Key": idempotency_key}
    request = urllib.request.Request(f"{os.environ['FARM_URL']}/{video_id}", b"", headers)
    with urllib.request.urlopen(request, timeout=590) as answer:
        return str(json.load(answer)["location"])


@job("render", queue="renders", key="video_id", max_attempts=3, max_duration=600)
def render(video: Video, ctx: Context) -> str:
    if video.minutes < 1:
        raise Reject("there is nothing to render")
    location = ctx.step("farm", farm, video.video_id, idempotency_key=ctx.idempotency_key_for("farm"))
    logger.info("rendered", extra={"video_id": video.video_id})
    ctx.send(bill, video, group=video.account)
    return location


@job("bill", queue="billing", key="video_id", max_duration=5)
def bill(video: Video, ctx: Context) -> None:
    minutes = {":minutes": {"N": str(video.minutes)}}
    update = {"TableName": os.environ["ACCOUNTS"], "Key": {"account": {"S": video.account}}}
    update |= {"UpdateExpression": "ADD minutes :minutes", "ExpressionAttributeValues": minutes}
    ctx.transaction.write({"Update": update})
