/**
 * Leads links back to the gateway: an answer that names the upstream's base address would send its reader, and the
 * reader's token with it, past the gateway. It acts once for each answer, before the cache; `http/links.ts` decides.
 */
import { hash } from 'node:crypto';
import { setImmediate } from 'node:timers/promises';
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

export interface LinkOptions {
  readonly upstream: URL;
  /** The path of the base address that callers use: `/api`. */
  readonly path: string;
  /** Before that path, in addresses. `undefined`: it is not known, and JSON passes as it came. */
  readonly publicBase: string | undefined;
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
    return typeof answer.body === 'string'
      ? this.#withBody(answer, first)
      : this.#rest(search, first).then((places) => this.#withBody(answer, places));
  }

  /** The places in the rest of a large answer, during whose search other requests go on. */
  async #rest(search: Generator<Place[]>, first: Place[]): Promise<Place[]> {
    const places = first;
    for (let slice = search.next(); slice.done !== true; slice = search.next()) {
      places.push(...slice.value);
      await setImmediate();
    }
    return places;
  }

  #withBody(answer: Answer, places: readonly Place[]): Answer {
    if (places.length === 0) return answer;
    return this.#marked({ ...answer, body: putInPlaces(answer.body, places, this.#bases.ours) });
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
