/**
 * Leads links back to the gateway: an answer that names the upstream's base address would send its reader, and the
 * reader's token with it, past the gateway. It acts once for each answer, before the cache; `http/links.ts` decides.
 */
import { hash } from 'node:crypto';
import { setImmediate } from 'node:timers/promises';
import { GatewayError } from '../errors.ts';
import type { Answer, UpstreamRequest } from '../exchange/exchange.ts';
import { andThen, type Eventually, type Layer } from '../exchange/layer.ts';
import { fieldValue, isEntityTag, isJsonType, singleField } from '../http/fields.ts';
import {
  type BasePattern,
  findInJson,
  type LinkBases,
  leadLinksBack,
  namesBase,
  type Place,
  patternFor,
  putInPlaces,
} from '../http/links.ts';
import { bufferOf } from '../http/payload.ts';

export interface LinkOptions {
  readonly upstream: URL;
  /** The path of the base address that callers use: `/api`. */
  readonly path: string;
  /** Before that path, in addresses. `undefined`: it is not known, and JSON passes as it came. */
  readonly publicBase: string | undefined;
  /** UPSTREAM_MAX_BODY, for an answer that grows as well. */
  readonly maxBodyBytes: number;
  /** Called once, when an answer names the upstream's base address and `publicBase` is not known. */
  readonly onNamed: () => void;
}

/** Of links, for `/status`. */
export interface LinksSnapshot {
  /** Answers name the upstream's address, and the gateway does not know its own (PUBLIC_BASE_URL). */
  readonly leadPast: boolean;
  /** Links of `Link` fields that led elsewhere, or could not be read, since the start. */
  readonly dropped: number;
}

export class Links {
  readonly #options: LinkOptions;
  readonly #pattern: BasePattern;
  readonly #bases: LinkBases;
  /** What a changed answer's entity tag ends with: the upstream's own tag is that of other bytes. */
  readonly #mark: string;
  #leadPast = false;
  #dropped = 0;

  constructor(options: LinkOptions) {
    const { upstream, path, publicBase } = options;
    this.#options = options;
    this.#pattern = patternFor(upstream);
    this.#bases = { upstream, ours: `${publicBase ?? ''}${path}` };
    this.#mark = `~${hash('sha256', this.#bases.ours, 'base64url').slice(0, 6)}"`;
  }

  readonly layer: Layer<UpstreamRequest, Answer> = (next) => (request, trace) => {
    const tag = request.validators?.['if-none-match'];
    if (tag?.endsWith(this.#mark) !== true) {
      return andThen(next(request, trace), (answer) => this.#leadBack(answer, request, false));
    }
    // The upstream knows the tag without the mark.
    const validators = { ...request.validators, 'if-none-match': `${tag.slice(0, -this.#mark.length)}"` };
    return andThen(next({ ...request, validators }, trace), (answer) =>
      this.#leadBack(answer, request, answer.status === 304),
    );
  };

  snapshot(): LinksSnapshot {
    return { leadPast: this.#leadPast, dropped: this.#dropped };
  }

  /** @param isMarked whether it confirms an answer that was changed */
  #leadBack(received: Answer, request: UpstreamRequest, isMarked: boolean): Eventually<Answer> {
    const answer = received.headers['link'] === undefined ? received : this.#withLinks(received, request);
    if (isMarked) return this.#marked(answer);
    if (this.#options.publicBase === undefined) {
      if (!this.#leadPast && namesBase(answer, this.#pattern)) {
        this.#leadPast = true;
        this.#options.onNamed();
      }
      return answer;
    }
    if (!isJsonType(singleField(answer.headers['content-type']))) return answer;
    const search = findInJson(answer.body, this.#pattern);
    const { value: first, done } = search.next();
    if (done === true) return answer;
    if (typeof answer.body !== 'string') return this.#inSlices(answer, answer.body, search, first);
    if (first.length === 0) return answer;
    return this.#marked({ ...answer, body: putInPlaces(answer.body, first, this.#bases.ours) });
  }

  /** Slice by slice, between which other requests go on: a large answer may have a link for every twenty bytes. */
  async #inSlices(answer: Answer, body: Buffer, search: Iterable<Place[]>, first: Place[]): Promise<Answer> {
    const pieces: Buffer[] = [];
    let [done, bytes] = [0, body.length];
    const lead = (places: Place[]): void => {
      const end = places.at(-1)?.[1];
      if (end === undefined) return;
      const piece = bufferOf(putInPlaces(body, places, this.#bases.ours, done, end));
      bytes += piece.length - (end - done);
      if (bytes > this.#options.maxBodyBytes) throw tooLarge(answer.status);
      pieces.push(piece);
      done = end;
    };
    lead(first);
    for (const places of search) {
      await setImmediate();
      lead(places);
    }
    if (done === 0) return answer;
    return this.#marked({ ...answer, body: Buffer.concat([...pieces, body.subarray(done)]) });
  }

  #marked(answer: Answer): Answer {
    const tag = answer.headers['etag'];
    if (typeof tag !== 'string' || !isEntityTag(tag)) return answer;
    return { ...answer, headers: { ...answer.headers, etag: `${tag.slice(0, -1)}${this.#mark}` } };
  }

  #withLinks(answer: Answer, { path, query }: UpstreamRequest): Answer {
    const { link, ...others } = answer.headers;
    const { upstream } = this.#options;
    const context = new URL(`${upstream.pathname.replace(/\/$/, '')}${path}${query}`, upstream);
    const { value, dropped } = leadLinksBack(fieldValue(link) ?? '', context, this.#bases);
    this.#dropped += dropped;
    return { ...answer, headers: value === undefined ? others : { ...others, link: value } };
  }
}

function tooLarge(receivedStatus: number): GatewayError {
  return new GatewayError('upstream-invalid-response', {
    reason: 'a body over UPSTREAM_MAX_BODY, once its links lead to PUBLIC_BASE_URL',
    proxyError: 'http_response_body_size',
    receivedStatus,
  });
}
