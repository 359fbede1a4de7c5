"""Python clients against a live server: chat, streams, tools, structured output, embeddings, errors.

An argument runs only the tests whose names begin with it."""

import json
import math
import os
import sys
import traceback
import urllib.request

URL, KEY = os.environ["LATTICE_URL"], os.environ["LATTICE_KEY"]
CHAT, EMBED = "gpt-4o-mini", "text-embedding-3-small"
WEATHER = {
    "type": "object",
    "properties": {"city": {"type": "string", "enum": ["Paris", "London"]}, "days": {"type": "integer", "minimum": 1, "maximum": 9}},
    "required": ["city", "days"],
    "additionalProperties": False,
}
TOOL = {"type": "function", "function": {"name": "get_weather", "description": "Weather of a city.", "parameters": WEATHER}}
QUESTION = [{"role": "user", "content": "What is the weather in Paris?"}]


def openai_client():
    from openai import OpenAI

    return OpenAI(base_url=f"{URL}/v1", api_key=KEY, max_retries=0)


def openai_chat():
    client = openai_client()
    args = dict(model=CHAT, messages=QUESTION, temperature=0, max_tokens=24)
    whole = client.chat.completions.create(**args, logprobs=True, top_logprobs=2)
    assert whole.choices[0].message.content and whole.usage.completion_tokens == 24
    assert len(whole.choices[0].logprobs.content) == 24
    chunks = list(client.chat.completions.create(**args, stream=True, stream_options={"include_usage": True}))
    text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    assert text == whole.choices[0].message.content and chunks[-1].usage.completion_tokens == 24
    two = client.chat.completions.create(**{**args, "temperature": 1, "n": 2, "seed": 1})
    assert len(two.choices) == 2
    text = client.completions.create(model=CHAT, prompt="Once upon a time", max_tokens=8, temperature=0)
    assert text.choices[0].text
    assert any(m.id == "smollm2-135m-instruct" for m in client.models.list())


def openai_tools():
    client = openai_client()
    args = dict(model=CHAT, messages=QUESTION, tools=[TOOL], tool_choice="required", temperature=0, max_tokens=100)
    whole = client.chat.completions.create(**args)
    call = whole.choices[0].message.tool_calls[0]
    assert whole.choices[0].finish_reason == "tool_calls" and set(json.loads(call.function.arguments)) == {"city", "days"}
    with client.chat.completions.stream(**{k: v for k, v in args.items()}) as stream:
        streamed = stream.get_final_completion().choices[0].message.tool_calls[0]
    assert streamed.function.arguments == call.function.arguments
    goes_on = QUESTION + [whole.choices[0].message, {"role": "tool", "tool_call_id": call.id, "content": "sunny"}]
    client.chat.completions.create(model=CHAT, messages=goes_on, tools=[TOOL], max_tokens=8)


def openai_structured():
    from pydantic import BaseModel

    class Weather(BaseModel):
        city: str
        sunny: bool

    # A schema that bounds its strings, so that a small model comes to an end.
    client = openai_client()
    schema = {"type": "json_schema", "json_schema": {"name": "weather", "strict": True, "schema": WEATHER}}
    answer = client.chat.completions.create(model=CHAT, messages=QUESTION, response_format=schema, max_tokens=100)
    assert set(json.loads(answer.choices[0].message.content)) == {"city", "days"}
    try:
        parsed = client.chat.completions.parse(
            model=CHAT, messages=QUESTION, response_format=Weather, max_tokens=400, temperature=0
        )
        assert isinstance(parsed.choices[0].message.parsed, Weather)
    except __import__("openai").LengthFinishReasonError:
        pass  # the model did not come to an end of its string


def openai_responses():
    client = openai_client()
    whole = client.responses.create(model=CHAT, input="Why is the sky blue?", temperature=0, max_output_tokens=24)
    assert whole.output_text and whole.usage.output_tokens == 24
    with client.responses.stream(model=CHAT, input="Why is the sky blue?", temperature=0, max_output_tokens=24) as stream:
        text = "".join(event.delta for event in stream if event.type == "response.output_text.delta")
    assert text == whole.output_text
    tool = {"type": "function", "name": "get_weather", "parameters": WEATHER, "strict": True}
    call = client.responses.create(model=CHAT, input=QUESTION, tools=[tool], tool_choice="required", temperature=0)
    item = call.output[0]
    assert item.type == "function_call" and set(json.loads(item.arguments)) == {"city", "days"}
    given = [*QUESTION, item.model_dump(exclude_none=True), {"type": "function_call_output", "call_id": item.call_id, "output": "sunny"}]
    client.responses.create(model=CHAT, input=given, tools=[{**tool, "strict": False}], max_output_tokens=8)


def openai_embeddings():
    client = openai_client()
    # The client asks for base64 unless told otherwise.
    packed = client.embeddings.create(model=EMBED, input=["hello", "world"]).data
    plain = client.embeddings.create(model=EMBED, input=["hello", "world"], encoding_format="float").data
    import struct

    single = lambda values: struct.pack(f"{len(values)}f", *values)
    assert [single(e.embedding) for e in packed] == [single(e.embedding) for e in plain]
    assert abs(math.fsum(x * x for x in plain[0].embedding) - 1) < 1e-3


def openai_errors():
    import openai

    client = openai_client()
    for change, kind, param in [
        ({"model": "gpt-9"}, openai.NotFoundError, "model"),
        ({"temperature": -1}, openai.BadRequestError, "temperature"),
        ({"extra_body": {"frobnicate": 1}}, openai.BadRequestError, "frobnicate"),
        ({"messages": [{"role": "user", "content": "x " * 20000}]}, openai.BadRequestError, "messages"),
    ]:
        try:
            client.chat.completions.create(**{"model": CHAT, "messages": QUESTION, "max_tokens": 1, **change})
        except kind as error:
            assert error.param == param, error
        else:
            raise AssertionError(f"{change} was accepted")
    try:
        openai.OpenAI(base_url=f"{URL}/v1", api_key="wrong", max_retries=0).models.list()
    except openai.AuthenticationError:
        pass
    else:
        raise AssertionError("a wrong key was accepted")


def anthropic_messages():
    from anthropic import Anthropic, BadRequestError

    client = Anthropic(base_url=URL, api_key=KEY, max_retries=0)
    question = {"role": "user", "content": "Why is the sky blue?"}
    args = dict(model="claude-test", max_tokens=24, messages=[question], extra_body={"temperature": 0})
    whole = client.messages.create(**args, system="Be brief.")
    assert whole.content[0].text and whole.stop_reason == "max_tokens"
    with client.messages.stream(**args, system="Be brief.") as stream:
        assert "".join(stream.text_stream) == whole.content[0].text
    tool = {"name": "get_weather", "description": "Weather of a city.", "input_schema": WEATHER}
    call = client.messages.create(**{**args, "max_tokens": 100}, tools=[tool], tool_choice={"type": "any"})
    block = call.content[0]
    assert call.stop_reason == "tool_use" and set(block.input) == {"city", "days"}
    goes_on = args["messages"] + [
        {"role": "assistant", "content": call.content},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": block.id, "content": "sunny"}]},
    ]
    client.messages.create(**{**args, "messages": goes_on}, tools=[tool])
    assert client.messages.count_tokens(model="claude-test", messages=args["messages"]).input_tokens > 5
    try:
        client.messages.create(**{**args, "extra_body": {"temperature": -1}})
    except BadRequestError as error:
        assert error.body["type"] == "error"
    else:
        raise AssertionError("a wrong temperature was accepted")


def langchain():
    from langchain_openai import ChatOpenAI, OpenAIEmbeddings

    chat = ChatOpenAI(model=CHAT, base_url=f"{URL}/v1", api_key=KEY, temperature=0, max_tokens=24, max_retries=0)
    assert chat.invoke("Why is the sky blue?").content
    assert "".join(chunk.content for chunk in chat.stream("Why is the sky blue?"))
    forced = chat.bind_tools([TOOL], tool_choice="get_weather").bind(max_tokens=100)
    assert forced.invoke("Weather?").tool_calls[0]["name"] == "get_weather"
    plain = OpenAIEmbeddings(model=EMBED, base_url=f"{URL}/v1", api_key=KEY, check_embedding_ctx_length=False)
    right = plain.embed_documents(["hello", "world"])
    assert len(right) == 2 and len(plain.embed_query("hello")) == 384
    # By default it sends token ids, of OpenAI's vocabulary: here of the model's own instead.
    import tiktoken

    kept = tiktoken.encoding_for_model, tiktoken.get_encoding
    tiktoken.encoding_for_model = tiktoken.get_encoding = lambda _: Vocabulary()
    ids = OpenAIEmbeddings(model=EMBED, base_url=f"{URL}/v1", api_key=KEY).embed_documents(["hello", "world"])
    tiktoken.encoding_for_model, tiktoken.get_encoding = kept
    near = lambda a, b: sum(x * y for x, y in zip(a, b)) > 0.9999
    assert all(near(a, b) for a, b in zip(ids, right))


class Vocabulary:
    """The served embedder's, in the shape of tiktoken's."""

    def encode(self, text, **_):
        request = urllib.request.Request(
            f"{URL}/tokenize",
            json.dumps({"model": EMBED, "content": text, "add_special": True}).encode(),
            {"content-type": "application/json", "x-api-key": KEY},
        )
        with urllib.request.urlopen(request) as answer:
            return json.load(answer)["tokens"]

    encode_ordinary = encode


def litellm():
    import litellm

    litellm.telemetry = False
    args = dict(model=f"openai/{CHAT}", api_base=f"{URL}/v1", api_key=KEY, messages=QUESTION, max_tokens=16, temperature=0)
    whole = litellm.completion(**args).choices[0].message.content
    text = "".join(c.choices[0].delta.content or "" for c in litellm.completion(**args, stream=True))
    assert whole and text == whole
    vectors = litellm.embedding(model=f"openai/{EMBED}", api_base=f"{URL}/v1", api_key=KEY, input=["hello"])
    assert len(vectors.data[0]["embedding"]) == 384


def instructor():
    import enum

    import instructor
    from pydantic import BaseModel, ConfigDict, Field

    class City(str, enum.Enum):
        paris = "Paris"
        london = "London"

    # Closed, so that a small model comes to an end.
    class Weather(BaseModel):
        model_config = ConfigDict(extra="forbid")
        city: City
        days: int = Field(ge=1, le=9)

    for mode in [instructor.Mode.TOOLS, instructor.Mode.JSON_SCHEMA]:
        client = instructor.from_openai(openai_client(), mode=mode)
        answer = client.chat.completions.create(
            model=CHAT, messages=QUESTION, response_model=Weather, temperature=0, max_tokens=200, max_retries=0
        )
        assert isinstance(answer, Weather), mode


def main():
    failed = []
    for test in [
        openai_chat,
        openai_tools,
        openai_structured,
        openai_responses,
        openai_embeddings,
        openai_errors,
        anthropic_messages,
        langchain,
        litellm,
        instructor,
    ]:
        if not test.__name__.startswith(tuple(sys.argv[1:2]) or ""):
            continue
        try:
            test()
            print(f"  {test.__name__}: ok", flush=True)
        except Exception:
            failed.append(test.__name__)
            print(f"  {test.__name__}: FAILED", flush=True)
            traceback.print_exc()
    if failed:
        raise SystemExit(f"failed: {', '.join(failed)}")


main()
