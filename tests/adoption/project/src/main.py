from work import bill, logger, render

from onceq import App

app = App([render, bill])
consumer = logger.inject_lambda_context(app.consumer)
relay, recovery = app.relay, app.recovery
