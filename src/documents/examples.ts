/** Programs that make one request, for people to copy: they run as they stand. */

export interface ExampleFacts {
  /** Scheme and authority of the gateway, as the reader reaches it. */
  readonly origin: string;
  /** The path of the base address. */
  readonly base: string;
  /** The path below it; a segment to fill in is written `:name`. */
  readonly path: string;
  /** Whether a request needs a credential. */
  readonly needsToken: boolean;
}

export interface Example {
  readonly language: 'curl' | 'JavaScript' | 'Python';
  readonly text: string;
}

/** The environment variable from which the examples read the token, so that it does not stand in a program. */
export const tokenVariable = 'ANALYTICS_TOKEN';

/** In place of each segment that the reader fills in. */
export const segmentInExamples = '1';

export function examplesOf({ origin, base, path, needsToken }: ExampleFacts): readonly Example[] {
  const url = `${origin}${base}${path.replace(/:\w+/g, segmentInExamples)}`;
  return [
    { language: 'curl', text: curl(url, needsToken) },
    { language: 'JavaScript', text: javascript(url, needsToken) },
    { language: 'Python', text: python(url, needsToken) },
  ];
}

function curl(url: string, needsToken: boolean): string {
  // Quoted for the query that a reader may add.
  return needsToken
    ? `curl -i -H "Authorization: Bearer $${tokenVariable}" \\\n  '${url}'`
    : `curl -i '${url}'`;
}

/** For Node 18 and later, as a module. */
function javascript(url: string, needsToken: boolean): string {
  const call = needsToken
    ? `fetch('${url}', {
  headers: { Authorization: \`Bearer \${process.env.${tokenVariable}}\` },
})`
    : `fetch('${url}')`;
  return `const response = await ${call};
if (!response.ok) throw new Error(await response.text());
console.log(await response.json());`;
}

/** For Python 3, with its own library alone. */
function python(url: string, needsToken: boolean): string {
  const imports = needsToken ? 'import json\nimport os' : 'import json';
  const request = needsToken
    ? `Request("${url}")
request.add_header("Authorization", "Bearer " + os.environ["${tokenVariable}"])`
    : `Request("${url}")`;
  return `${imports}
from urllib.error import HTTPError
from urllib.request import Request, urlopen

request = ${request}
try:
    with urlopen(request, timeout=30) as response:
        print(json.load(response))
except HTTPError as problem:
    raise SystemExit(problem.read().decode())`;
}
