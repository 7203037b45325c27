from weft import Workflow, run

flow = Workflow("triage", output="{{ assign.output }}")
reply = {"type": "object", "required": ["team"], "properties": {"team": {"enum": ["billing", "support"]}}}
ask = {"model": "gpt-5-mini", "prompt": "Which team answers this? {{ input.text }}", "response_schema": reply}
# weft retries a time-out, a 429, a 5xx and a reply that does not fit the schema, after about 1, 2, 4 … s.
classify = flow.node(id="classify", handler="llm_service", config=ask, max_retries=5, timeout_seconds=60)


# `assign` starts once the reply is on disk: a crash from here on does not cost a second call.
@flow.node(dependencies=[classify])
def assign(input, classify):
    return f"{classify['json']['team']}: {input['text']}"


if __name__ == "__main__":
    print(run(flow, input={"text": "I was charged twice."}, data="state").output)
