// npm install openai
import OpenAI from "openai";
import { readFileSync } from "node:fs";

const task = JSON.parse(readFileSync(0, "utf8"));
const client = new OpenAI();
const made = await client.chat.completions.create({
  model: "gpt-5-mini",
  messages: [{ role: "user", content: task.problem }],
});
console.log(made.choices[0].message.content);
