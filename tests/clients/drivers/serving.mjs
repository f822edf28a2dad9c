// Questions as lines of JSON on stdin; the answer to each, which `ask` gives, on stdout.

import { createInterface } from "node:readline";

const home = process.cwd();

export const serve = async (ask) => {
  for await (const line of createInterface({ input: process.stdin })) {
    const question = JSON.parse(line);
    process.chdir(question.folder);
    const reply = await ask(question).then(
      (answer) => ({ answer }),
      (error) => ({ error: String(error?.stack ?? error) }),
    );
    process.chdir(home);
    process.stdout.write(`${JSON.stringify(reply)}\n`);
  }
};
