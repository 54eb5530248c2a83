// The server under test, and the tool that all programs offer it.

export const MODEL = "scripted";

// Set by tests/clients/test_js_clients.py.
export const BASE_URL = `${process.env.SERVER_URL}/v1`;

export const ADD_SCHEMA = {
  type: "object",
  properties: { a: { type: "integer" }, b: { type: "integer" } },
  required: ["a", "b"],
  additionalProperties: false,
};

export const add = ({ a, b }) => `the sum is ${a + b}`;

// A program prints what its client made of the answers, as one JSON object by the name of what was tried.
export async function report(trials) {
  const told = {};
  for (const [name, trial] of Object.entries(trials)) {
    try {
      told[name] = await trial();
    } catch (error) {
      told[name] = { thrown: error.message };
    }
  }
  console.log(JSON.stringify(told));
}
