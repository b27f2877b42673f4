/**
 * What lies in the shared store of one read, sealed: the answer, and the outcome for gateways that wait. Times travel as
 * the store's, so that the age of an answer is the same at each gateway although their clocks differ.
 */
import type { Publication, SharedLook, SharedOutcome } from '../cache/shared-reads.ts';
import { GatewayError, isProblemCode } from '../errors.ts';
import type { Answer } from '../exchange/exchange.ts';
import type { HeaderFields } from '../http/fields.ts';
import { bufferOf, payloadOf } from '../http/payload.ts';
import { pack, type Sealing, unpack } from './sealing.ts';
import { clockErrorMs, type StoreClock } from './store-clock.ts';

/** How one read is written and understood. */
export interface StoredForm {
  /** The store's name for the read. */
  readonly name: string;
  readonly sealing: Sealing;
  /** The generation, at this gateway, of the key that it is sealed with. */
  readonly generation: number;
  readonly clock: Pick<StoreClock, 'at' | 'local'>;
}

/** Long enough for the slowest of those that wait to look. */
export const outcomeKeptMs = 2_000;

const emptyBody = Buffer.alloc(0);

/** @param epoch the purges that were known before the exchange: an answer from before a purge is no answer */
export function writeAnswer(
  form: StoredForm,
  epoch: string,
  publication: Publication,
  nowMs: number,
): { readonly bytes: Buffer; readonly forMs: number } | undefined {
  const seal = (facts: object, body: Buffer): Buffer =>
    form.sealing.seal(`answer ${form.name}`, pack({ ...facts, epoch }, body));
  if (publication.kind === 'not shareable') {
    return { bytes: seal({ kind: 'not shareable' }, emptyBody), forMs: publication.forMs };
  }
  if (publication.kind !== 'stored') return undefined;
  const facts = datedFacts(form, publication.answer);
  const forMs = publication.untilMs - nowMs;
  if (facts === undefined || forMs < 1) return undefined;
  return { bytes: seal({ kind: 'answer', ...facts }, bufferOf(publication.answer.body)), forMs };
}

/** @param isCurrent whether what was sealed as `epoch` is from after all purges that are known */
export function readAnswer(
  form: StoredForm,
  sealed: Buffer,
  isCurrent: (epoch: unknown) => boolean,
): SharedLook['stored'] {
  const plain = form.sealing.unseal(`answer ${form.name}`, sealed);
  const { facts, body } = (plain && unpack(plain)) ?? {};
  if (facts === undefined || body === undefined || !isCurrent(facts['epoch'])) return undefined;
  return facts['kind'] === 'not shareable' ? 'not shareable' : answerIn(form, facts, body);
}

export function writeOutcome(
  form: StoredForm,
  id: string,
  epoch: string,
  publication: Publication,
): Buffer | undefined {
  const writtenMs = form.clock.at(performance.now());
  const seal = (facts: object, body: Buffer): Buffer =>
    form.sealing.seal(`outcome ${id} ${form.name}`, pack({ ...facts, epoch, writtenMs }, body));
  if (publication.kind === 'stored') {
    const { forwardStatus, answer } = publication;
    return datedFacts(form, answer) && seal({ kind: 'stored', forwardStatus }, emptyBody);
  }
  if (publication.kind !== 'outcome') return undefined;
  const { outcome } = publication;
  if (outcome.kind === 'failed') {
    const { code, message: reason, retryAfterMs, proxyError, receivedStatus } = outcome.error;
    return seal({ kind: 'failed', code, reason, retryAfterMs, proxyError, receivedStatus }, emptyBody);
  }
  const { answer, forwardStatus } = outcome;
  const facts = datedFacts(form, answer);
  return facts && seal({ kind: 'answered', forwardStatus, ...facts }, bufferOf(answer.body));
}

/**
 * @param stored what the same look found: an outcome that was stored is not written twice
 * @param isCurrent as for an answer
 */
export function readOutcome(
  form: StoredForm,
  id: string,
  sealed: Buffer,
  stored: SharedLook['stored'],
  isCurrent: (epoch: unknown) => boolean,
): SharedOutcome | undefined {
  const plain = form.sealing.unseal(`outcome ${id} ${form.name}`, sealed);
  const { facts, body } = (plain && unpack(plain)) ?? {};
  if (facts === undefined || body === undefined || !isCurrent(facts['epoch'])) return undefined;
  // Who writes into the store could name an exchange of yesterday as the one that is under way.
  const writtenMs = form.clock.local(Number(facts['writtenMs']));
  if (writtenMs === undefined || !(performance.now() - writtenMs <= outcomeKeptMs + clockErrorMs))
    return undefined;
  if (facts['kind'] === 'failed') return failureIn(facts);
  const forwardStatus = facts['forwardStatus'] === 304 ? 304 : undefined;
  const answer = facts['kind'] === 'stored' ? stored : answerIn(form, facts, body);
  if (answer === undefined || answer === 'not shareable') return undefined;
  return { kind: 'answered', answer, forwardStatus };
}

function failureIn(facts: Record<string, unknown>): SharedOutcome | undefined {
  const { code, reason, retryAfterMs, proxyError, receivedStatus } = facts;
  if (typeof code !== 'string' || !isProblemCode(code)) return undefined;
  const error = new GatewayError(code, {
    reason: `another gateway: ${String(reason)}`,
    ...(typeof retryAfterMs === 'number' ? { retryAfterMs } : {}),
    ...(typeof receivedStatus === 'number' ? { receivedStatus } : {}),
    // Sealed by a gateway, so it is one of the names that gateways write.
    ...(typeof proxyError === 'string' ? { proxyError: proxyError as never } : {}),
  });
  return { kind: 'failed', error };
}

/** `undefined` where the answer is another key's, or the store's time is not known. */
function datedFacts({ generation, clock }: StoredForm, answer: Answer): object | undefined {
  const storeMs = clock.at(answer.receivedMs);
  return answer.generation !== generation || storeMs === undefined ? undefined : answerFacts(answer, storeMs);
}

function answerIn(
  { generation, clock }: StoredForm,
  facts: Record<string, unknown>,
  body: Buffer,
): Answer | undefined {
  const receivedMs = clock.local(Number(facts['storeMs']));
  if (receivedMs === undefined) return undefined;
  return restoreAnswer(facts, body, generation, receivedMs, performance.now());
}

/** The facts beside the body. */
interface AnswerHead {
  readonly status: number;
  readonly headers: HeaderFields;
  /** When its last byte arrived, in ms of the store's clock. */
  readonly storeMs: number;
  /** From the attempt to its last byte. */
  readonly durationMs: number;
  /** Wall clock of the gateway that fetched it, at receipt. */
  readonly receivedAt: number;
}

/** @param storeMs when its last byte arrived, by the store's clock */
function answerFacts(answer: Answer, storeMs: number): AnswerHead {
  const { status, headers, sentMs, receivedMs, receivedAt } = answer;
  return { status, headers, storeMs, durationMs: receivedMs - sentMs, receivedAt };
}

/**
 * The answer as if this gateway had fetched it. `undefined` where its facts make no sense, as an arrival in the future:
 * the store's clock was set back, and nothing says how old the answer is.
 *
 * @param receivedMs the store's time of its arrival on this gateway's monotonic clock
 */
function restoreAnswer(
  facts: Record<string, unknown>,
  body: Buffer,
  generation: number,
  receivedMs: number,
  nowMs: number,
): Answer | undefined {
  const { status, headers, durationMs, receivedAt } = facts;
  if (!Number.isInteger(status) || !isAmount(durationMs) || !isAmount(receivedAt)) return undefined;
  if (!isFields(headers) || !Number.isFinite(receivedMs) || receivedMs > nowMs + clockErrorMs) {
    return undefined;
  }
  const arrivedMs = Math.min(receivedMs, nowMs);
  return {
    status: status as number,
    headers,
    body: payloadOf(body),
    sentMs: arrivedMs - durationMs,
    receivedMs: arrivedMs,
    receivedAt,
    generation,
  };
}

function isAmount(value: unknown): value is number {
  return typeof value === 'number' && Number.isFinite(value) && value >= 0;
}

function isFields(value: unknown): value is HeaderFields {
  if (typeof value !== 'object' || value === null) return false;
  return Object.values(value).every(
    (field) =>
      typeof field === 'string' ||
      (Array.isArray(field) && field.every((line: unknown) => typeof line === 'string')),
  );
}
