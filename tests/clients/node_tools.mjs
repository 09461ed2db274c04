// The openai library and the Vercel AI SDK for JavaScript with the tools that their users run themselves, against a
// gateway with the simulator behind it. Usage: `node node_tools.mjs URL`, the gateway's base URL with `/v1`. Prints a
// line for each check and exits 1 if one failed.
import { createOpenAI } from "@ai-sdk/openai";
import { generateText, stepCountIs, streamText } from "ai";
import { execSync } from "node:child_process";
import OpenAI from "openai";

const url = process.argv[2];
const run = (line) => execSync(line, { encoding: "utf8" });
let failed = 0;

async function check(name, said, expected) {
  let fault = "";
  try {
    const text = await said();
    if (!text.includes(expected)) fault = `${JSON.stringify(expected)} is not in ${JSON.stringify(text)}`;
  } catch (error) {
    fault = String(error);
  }
  console.log(`${name}: ${fault || "ok"}`);
  failed += fault ? 1 : 0;
}

// ---------------------------------------------------------------- openai

const library = new OpenAI({ baseURL: url, apiKey: "unused", maxRetries: 0, timeout: 20_000 });
const answers = {
  shell_call: (call) => ({
    type: "shell_call_output",
    output: call.action.commands.map((line) => ({
      stdout: run(line), stderr: "", outcome: { type: "exit", exit_code: 0 },
    })),
  }),
  local_shell_call: (call) => ({ type: "local_shell_call_output", output: run(call.action.command.join(" ")) }),
  apply_patch_call: (call) => ({
    type: "apply_patch_call_output", status: "completed", output: `patched ${call.operation.path}`,
  }),
  custom_tool_call: (call) => ({ type: "custom_tool_call_output", output: call.input.toUpperCase() }),
  tool_search_call: () => ({
    type: "tool_search_output", execution: "client", status: "completed",
    tools: [{ type: "function", name: "late", description: "Comes late.", parameters: { type: "object", properties: {} } }],
  }),
  function_call: (call) => ({ type: "function_call_output", output: `${call.name} was called` }),
};
const tools = [
  { type: "shell", environment: { type: "local" } },
  { type: "local_shell" },
  { type: "apply_patch" },
  { type: "custom", name: "repeat", description: "Repeats." },
  { type: "tool_search", execution: "client", description: "Finds tools.", parameters: { type: "object" } },
];

async function talk(prompt, stream) {
  let input = [{ role: "user", content: prompt }];
  let previous;
  for (;;) {
    const body = { model: "sim", input, tools, previous_response_id: previous };
    const response = stream
      ? await library.responses.stream(body).finalResponse()
      : await library.responses.create(body);
    const calls = response.output.filter((item) => item.type in answers);
    if (!calls.length) return response.output_text;
    input = calls.map((call) => ({ call_id: call.call_id, ...answers[call.type](call) }));
    previous = response.id;
  }
}

const PROMPTS = {
  shell: ['@tool shell {"commands": ["echo marker-42"]}', "marker-42"],
  local_shell: ['@tool local_shell {"command": ["echo", "marker-42"]}', "marker-42"],
  apply_patch: ['@tool apply_patch {"type": "delete_file", "path": "a.txt"}', "patched a.txt"],
  custom: ['@tool repeat {"input": "say it"}', "SAY IT"],
  "tool_search and what it found": ['@tool tool_search {"query": "late"}\n@then\n@tool late {}', "late was called"],
};
for (const stream of [false, true]) {
  for (const [name, [prompt, expected]] of Object.entries(PROMPTS)) {
    await check(`openai ${stream ? "stream" : "answer"} ${name}`, () => talk(prompt, stream), expected);
  }
}

// ---------------------------------------------------------------- Vercel AI SDK

const provider = createOpenAI({ baseURL: url, apiKey: "unused" });
const own = {
  shell: provider.tools.shell({
    environment: { type: "local" },
    execute: async ({ action }) => ({
      output: action.commands.map((line) => ({ stdout: run(line), stderr: "", outcome: { type: "exit", exitCode: 0 } })),
    }),
  }),
  local_shell: provider.tools.localShell({ execute: async ({ action }) => ({ output: run(action.command.join(" ")) }) }),
  apply_patch: provider.tools.applyPatch({
    execute: async ({ operation }) => ({ status: "completed", output: `patched ${operation.path}` }),
  }),
  repeat: provider.tools.customTool({ description: "Repeats.", execute: async (input) => input.toUpperCase() }),
};
const ways = {
  answer: async (asked) => (await generateText(asked)).text,
  stream: async (asked) => await streamText(asked).text,
};
for (const [way, ask] of Object.entries(ways)) {
  for (const name of ["shell", "local_shell", "apply_patch", "custom"]) {
    const [prompt, expected] = PROMPTS[name];
    const asked = { model: provider.responses("sim"), prompt, tools: own, stopWhen: stepCountIs(4) };
    await check(`ai ${way} ${name}`, () => ask(asked), expected);
  }
}
process.exit(failed ? 1 : 0);
