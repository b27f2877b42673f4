/**
 * What an operator knows of the upstream, put onto the API document: a JSON merge patch (RFC 7396) in OPENAPI_PATCH_FILE.
 * It is read and checked once, at the start.
 */
import { didYouMean } from '../config/misspellings.ts';
import { errorCode, SettingError } from '../errors.ts';
import { NotAFileError, readTextSync } from '../files/read.ts';
import type { Operation } from '../operations.ts';
import { describeApi, type OpenApiDocument } from './openapi.ts';

type JsonObject = { readonly [name: string]: unknown };

/** A patch that was checked. */
export interface OpenApiPatch {
  readonly members: JsonObject;
}

const setting = 'OPENAPI_PATCH_FILE';
const mostNamed = 10;
const otherMethods = ['put', 'post', 'delete', 'options', 'head', 'patch', 'trace'];

/** The members that objects of a document may have (OpenAPI 3.1 section 4.8), besides extensions (`x-`). */
const knownMembers = {
  document: 'openapi info jsonSchemaDialect servers paths webhooks components security tags externalDocs',
  info: 'title summary description termsOfService contact license version',
  components:
    'schemas responses parameters examples requestBodies headers securitySchemes links callbacks pathItems',
  path: `$ref summary description servers parameters get ${otherMethods.join(' ')}`,
  operation:
    'tags summary description externalDocs operationId parameters requestBody responses callbacks deprecated security servers',
  parameter:
    'name in description required deprecated allowEmptyValue style explode allowReserved schema example examples content',
};

/**
 * Reads the patch and tries it on the document of all operations.
 *
 * @throws SettingError with all that is wrong, each with its place in the document
 */
export function readOpenApiPatch(file: string, operations: readonly Operation[]): OpenApiPatch {
  let text: string;
  try {
    text = readTextSync(file);
  } catch (error) {
    const why = error instanceof NotAFileError ? error.message : `cannot be read (${errorCode(error)})`;
    throw new SettingError(`${setting}: ${why}`);
  }
  const members = parse(text);
  if (!isObject(members)) throw new SettingError(`${setting}: must hold a JSON object`);
  const problems = problemsOf(members, operations);
  if (problems.length === 0) return { members };
  const more = problems.length - mostNamed;
  const named = problems.slice(0, mostNamed).map((problem) => `${setting}: ${problem}`);
  throw new SettingError(...named, ...(more > 0 ? [`${setting}: ${more} more problems`] : []));
}

function problemsOf(members: JsonObject, operations: readonly Operation[]): readonly string[] {
  const document = describeApi({ operations, admitsAnonymous: false });
  try {
    const patched = mergePatch(document, members) as JsonObject;
    return [...unknownPaths(members, document), ...problemsIn(patched, Object.keys(document.paths))];
  } catch (error) {
    if (error instanceof RangeError) return ['is nested too deeply'];
    throw error;
  }
}

/** The document with the patch on it. What is said of operations that are not in the document is left out. */
export function patchDocument(document: OpenApiDocument, { members }: OpenApiPatch): OpenApiDocument {
  const { paths, ...others } = members;
  const own = Object.entries(isObject(paths) ? paths : {}).filter(([path]) =>
    Object.hasOwn(document.paths, path),
  );
  return mergePatch(document, { ...others, paths: Object.fromEntries(own) }) as OpenApiDocument;
}

/** JSON merge patch (RFC 7396 section 2): members are merged, `null` takes one away, anything else takes its place. */
export function mergePatch(target: unknown, patch: unknown): unknown {
  if (!isObject(patch)) return patch;
  const merged = new Map(Object.entries(isObject(target) ? target : {}));
  for (const [name, value] of Object.entries(patch)) {
    if (value === null) merged.delete(name);
    else merged.set(name, mergePatch(merged.get(name), value));
  }
  // Unlike an assignment it makes a member of any name, `__proto__` too.
  return Object.fromEntries(merged);
}

function parse(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch (error) {
    // The parser quotes what it read; its place is enough.
    const [place = ''] =
      /(?: at position \d+(?: \(line \d+ column \d+\))?)/.exec((error as Error).message) ?? [];
    throw new SettingError(`${setting}: is no JSON${place}`);
  }
}

function unknownPaths({ paths }: JsonObject, document: OpenApiDocument): readonly string[] {
  if (!isObject(paths)) return [];
  const known = Object.keys(document.paths);
  return Object.keys(paths)
    .filter((path) => !known.includes(path))
    .map((path) => `paths has ${path}, which is no operation; there are ${known.join(', ')}`);
}

/** A misspelled member would have no effect, and what was written in it would be missed in silence. */
function unknownMembers(place: string, kind: keyof typeof knownMembers, value: JsonObject): string[] {
  const known = knownMembers[kind].split(' ');
  return Object.keys(value)
    .filter((name) => !known.includes(name) && !name.startsWith('x-'))
    .map((name) => `${place}${name} is not known here${didYouMean(name, known)}`);
}

/** What is no longer a description that programs can read (OpenAPI 3.1). */
function problemsIn(document: JsonObject, knownPaths: readonly string[]): readonly string[] {
  const problems = unknownMembers('', 'document', document);
  if (!/^3\.1\.\d+$/.test(String(document['openapi']))) problems.push('openapi is no longer 3.1');
  const { info, paths, components } = document;
  if (!isObject(info) || typeof info['title'] !== 'string' || typeof info['version'] !== 'string')
    problems.push('info needs a title and a version');
  if (isObject(info)) problems.push(...unknownMembers('info.', 'info', info));
  if (!isObject(components)) problems.push('components must stay an object');
  else problems.push(...unknownMembers('components.', 'components', components));
  if (!isObject(paths)) return [...problems, 'paths must stay an object'];
  for (const [path, item] of Object.entries(paths)) {
    if (knownPaths.includes(path)) problems.push(...problemsOfPath(path, item));
  }
  for (const [place, reference] of referencesIn(document, '')) {
    if (!isResolved(reference, document))
      problems.push(`${place} refers to ${reference}, which is not there`);
  }
  return problems;
}

function problemsOfPath(path: string, item: unknown): readonly string[] {
  const place = `paths.${path}`;
  if (!isObject(item)) return [`${place} must be an object`];
  const problems = [
    ...unknownMembers(`${place}.`, 'path', item),
    ...Object.keys(item)
      .filter((name) => otherMethods.includes(name))
      .map((method) => `${place} has ${method}, and the gateway answers GET alone`),
  ];
  const { get, parameters = [] } = item;
  if (!isObject(get) || typeof get['operationId'] !== 'string' || !isObject(get['responses']))
    return [...problems, `${place}.get needs its operationId and responses`];
  return [
    ...problems,
    ...unknownMembers(`${place}.get.`, 'operation', get),
    ...problemsOfParameters(`${place}.parameters`, path, parameters),
    ...problemsOfParameters(`${place}.get.parameters`, path, get['parameters'] ?? []),
  ];
}

function problemsOfParameters(place: string, path: string, parameters: unknown): readonly string[] {
  if (!Array.isArray(parameters)) return [`${place} must be a list`];
  const named = new Set<string>();
  return parameters.flatMap((one: unknown, at): string[] => {
    const here = `${place}[${at}]`;
    if (!isObject(one)) return [`${here} must be an object`];
    if (typeof one['$ref'] === 'string') return [];
    const { name, in: where, schema, content } = one;
    if (typeof name !== 'string' || name === '') return [`${here} needs a name`];
    if (!['query', 'header', 'path', 'cookie'].includes(String(where)))
      return [`${here} (${name}) needs "in": "query", "header" or "path"`];
    if (where === 'cookie') return [`${here} (${name}) is a cookie, and none goes up`];
    if (where === 'path' && !path.includes(`{${name}}`)) return [`${here} (${name}) is not in the path`];
    if (!isObject(schema) && !isObject(content)) return [`${here} (${name}) needs a schema`];
    const isDouble = named.has(`${where} ${name}`);
    named.add(`${where} ${name}`);
    const unknown = unknownMembers(`${here}.`, 'parameter', one);
    return isDouble ? [...unknown, `${here} (${name}) is there twice`] : unknown;
  });
}

function* referencesIn(
  value: unknown,
  place: string,
): Generator<readonly [place: string, reference: string]> {
  if (typeof value !== 'object' || value === null) return;
  for (const [name, member] of Object.entries(value)) {
    const here = Array.isArray(value) ? `${place}[${name}]` : place === '' ? name : `${place}.${name}`;
    if (name === '$ref' && typeof member === 'string') yield [place, member];
    else yield* referencesIn(member, here);
  }
}

/** Within the document alone (RFC 6901): what stands elsewhere is not there for those who read it. */
function isResolved(reference: string, document: JsonObject): boolean {
  if (!reference.startsWith('#/')) return false;
  const names = reference.slice(2).split('/');
  let found: unknown = document;
  for (const name of names) {
    const plain = name.replaceAll('~1', '/').replaceAll('~0', '~');
    if (typeof found !== 'object' || found === null || !Object.hasOwn(found, plain)) return false;
    found = (found as JsonObject)[plain];
  }
  return true;
}

function isObject(value: unknown): value is JsonObject {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
