/** What lies in the shared store of one read, sealed: the answer, and the outcome for gateways that wait. */
import type { Publication, SharedLook, SharedOutcome } from '../cache/shared-reads.ts';
import { GatewayError, isProblemCode } from '../errors.ts';
import type { Answer } from '../exchange/exchange.ts';
import { bufferOf } from '../http/payload.ts';
import { answerOf, clockErrorMs, headOf, pack, unpack } from './answer-codec.ts';
import type { Sealing } from './sealing.ts';
import type { StoreClock } from './store-clock.ts';

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
  const facts = factsOf(form, publication.answer);
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
    return factsOf(form, answer) && seal({ kind: 'stored', forwardStatus }, emptyBody);
  }
  if (publication.kind !== 'outcome') return undefined;
  const { outcome } = publication;
  if (outcome.kind === 'failed') {
    const { code, message: reason, retryAfterMs, proxyError, receivedStatus } = outcome.error;
    return seal({ kind: 'failed', code, reason, retryAfterMs, proxyError, receivedStatus }, emptyBody);
  }
  const { answer, forwardStatus } = outcome;
  const facts = factsOf(form, answer);
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
function factsOf({ generation, clock }: StoredForm, answer: Answer): object | undefined {
  const storeMs = clock.at(answer.receivedMs);
  return answer.generation !== generation || storeMs === undefined ? undefined : headOf(answer, storeMs);
}

function answerIn(
  { generation, clock }: StoredForm,
  facts: Record<string, unknown>,
  body: Buffer,
): Answer | undefined {
  const receivedMs = clock.local(Number(facts['storeMs']));
  if (receivedMs === undefined) return undefined;
  return answerOf(facts, body, generation, receivedMs, performance.now());
}
