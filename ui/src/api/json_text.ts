// JSON as text. JSON.parse turns 12345678901234567890 into another number and 1.0 into 1, so values that the
// page shows, or sends back, are cut out of the text and stay as they are.

type Token = { kind: "string" | "number" | "word" | "mark"; text: string };

const TOKEN = /\s*(?:("(?:[^"\\]|\\.)*")|(-?\d[\d.eE+-]*)|([A-Za-z]+)|([{}[\],:]))/y;

function tokens(text: string): Token[] {
  const found: Token[] = [];
  TOKEN.lastIndex = 0;
  let end = 0;
  for (let match = TOKEN.exec(text); match !== null; match = TOKEN.exec(text)) {
    const [, string, number, word, mark] = match;
    end = TOKEN.lastIndex;
    if (string !== undefined) found.push({ kind: "string", text: string });
    else if (number !== undefined) found.push({ kind: "number", text: number });
    else if (word !== undefined) found.push({ kind: "word", text: word });
    else if (mark !== undefined) found.push({ kind: "mark", text: mark });
  }
  if (text.slice(end).trim() !== "") throw new SyntaxError("not JSON");
  return found;
}

/** Return JSON text with a line for each member, and every number and string as it was. */
export function prettyJson(text: string): string {
  let list: Token[];
  try {
    list = tokens(text);
  } catch {
    return text;
  }
  let out = "";
  let depth = 0;
  const line = (): string => `\n${"  ".repeat(depth)}`;
  list.forEach((token, index) => {
    const next = list[index + 1]?.text;
    const before = list[index - 1]?.text;
    if (token.kind !== "mark") out += token.text;
    else if (token.text === "{" || token.text === "[") {
      depth += 1;
      out += token.text;
      if (next !== "}" && next !== "]") out += line();
    } else if (token.text === "}" || token.text === "]") {
      depth -= 1;
      out += before === "{" || before === "[" ? token.text : `${line()}${token.text}`;
    } else if (token.text === ",") out += `,${line()}`;
    else out += ": ";
  });
  return out;
}

/** Return the text of each member of the outermost object: {"a": "[1.0]"} of '{"a":[1.0]}'. */
export function memberTexts(text: string): Record<string, string> {
  const members: Record<string, string> = {};
  let depth = 0;
  let name: string | null = null;
  let value = "";
  for (const token of tokens(text)) {
    const isMark = token.kind === "mark";
    if (isMark && (token.text === "}" || token.text === "]")) depth -= 1;
    if (depth === 0) {
      if (name !== null) members[name] = value;
      name = null;
    } else if (depth === 1 && isMark && token.text === "," && name !== null) {
      members[name] = value;
      name = null;
      value = "";
    } else if (depth === 1 && name === null && token.kind === "string") {
      name = JSON.parse(token.text) as string;
      value = "";
    } else if (!(depth === 1 && isMark && token.text === ":")) {
      value += token.text;
    }
    if (isMark && (token.text === "{" || token.text === "[")) depth += 1;
  }
  return members;
}

/** Return why a text is not a payload, or null if it is one: a JSON object, or null. */
export function payloadProblem(text: string): string | null {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (error) {
    return `This is not JSON: ${error instanceof Error ? error.message : String(error)}`;
  }
  if (value === null || (typeof value === "object" && !Array.isArray(value))) return null;
  return "A payload is an object with the task's arguments by name, like {\"team\": \"ops\"}.";
}

/** Return a body as JSON text, with a payload as it was written. */
export function bodyWithPayload(members: Record<string, unknown>, payload: string): string {
  const rest = Object.entries(members).map(([name, value]) => `${JSON.stringify(name)}: ${JSON.stringify(value)}`);
  return `{${[...rest, `"payload": ${payload}`].join(", ")}}`;
}
