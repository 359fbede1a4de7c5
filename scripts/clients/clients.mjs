// Node clients against a live server: chat, streams, tools, structured output, embeddings, errors.

import assert from "node:assert/strict";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { embedMany, generateText, Output, streamText, tool } from "ai";
import OpenAI from "openai";
import { z } from "zod";

const [url, key] = [process.env.LATTICE_URL, process.env.LATTICE_KEY];
const [chat, embed] = ["gpt-4o-mini", "text-embedding-3-small"];
const weather = z.object({ city: z.enum(["Paris", "London"]), days: z.number().int().min(1).max(9) });
const messages = [{ role: "user", content: "What is the weather in Paris?" }];

const tests = {
  async "openai"() {
    const client = new OpenAI({ baseURL: `${url}/v1`, apiKey: key, maxRetries: 0 });
    const body = { model: chat, messages, temperature: 0, max_tokens: 16 };
    const whole = await client.chat.completions.create(body);
    let text = "";
    for await (const chunk of await client.chat.completions.create({ ...body, stream: true })) {
      text += chunk.choices[0]?.delta?.content ?? "";
    }
    assert.equal(text, whole.choices[0].message.content);
    const parameters = z.toJSONSchema(weather);
    delete parameters.$schema;
    const tools = [{ type: "function", function: { name: "get_weather", parameters } }];
    const called = await client.chat.completions.create({ ...body, tools, tool_choice: "required", max_tokens: 100 });
    weather.parse(JSON.parse(called.choices[0].message.tool_calls[0].function.arguments));
    const vectors = await client.embeddings.create({ model: embed, input: ["hello", "world"] });
    assert.equal(vectors.data[1].embedding.length, 384);
    const response = await client.responses.create({ model: chat, input: "Hello", max_output_tokens: 8 });
    assert.ok(response.output_text.length > 0);
    await assert.rejects(client.chat.completions.create({ ...body, model: "gpt-9" }), OpenAI.NotFoundError);
    await assert.rejects(client.chat.completions.create({ ...body, frobnicate: 1 }), OpenAI.BadRequestError);
  },

  async "ai"() {
    const lattice = createOpenAICompatible({
      name: "lattice",
      baseURL: `${url}/v1`,
      apiKey: key,
      includeUsage: true,
      supportsStructuredOutputs: true,
    });
    const model = lattice(chat);
    const settings = { model, prompt: "What is the weather in Paris?", temperature: 0, maxRetries: 0 };
    const whole = await generateText({ ...settings, maxOutputTokens: 16 });
    assert.ok(whole.text.length > 0 && whole.usage.outputTokens === 16);
    const stream = streamText({ ...settings, maxOutputTokens: 16 });
    let text = "";
    for await (const piece of stream.textStream) text += piece;
    assert.equal(text, whole.text);
    const tools = { get_weather: tool({ description: "Weather of a city.", inputSchema: weather }) };
    const called = await generateText({ ...settings, tools, toolChoice: "required", maxOutputTokens: 100 });
    assert.equal(called.toolCalls[0].toolName, "get_weather");
    const object = await generateText({ ...settings, output: Output.object({ schema: weather }), maxOutputTokens: 100 });
    weather.parse(object.output);
    const vectors = await embedMany({ model: lattice.embeddingModel(embed), values: ["hello", "world"], maxRetries: 0 });
    assert.equal(vectors.embeddings.length, 2);
  },
};

let failed = 0;
for (const [name, test] of Object.entries(tests)) {
  try {
    await test();
    console.log(`  ${name}: ok`);
  } catch (error) {
    failed += 1;
    console.log(`  ${name}: FAILED`);
    console.error(error);
  }
}
process.exit(failed ? 1 : 0);
