/**
 * Server-sent events for consoles (the living standard of HTML, section 9.2). The status is read once for all that
 * show the same, and not at all while none is open.
 */
import { searched } from './middleware.ts';

const statusEveryMs = 2_000;
/** Fewer than the listener takes connections: who scrapes and who purges is not kept out. */
const maxConsoles = 16;

export interface LiveEventsOptions {
  /** The status as JSON, in one line. @param workspace the only one that it is about, of several */
  status(workspace: string | undefined): Promise<string>;
  /** What a console is told first: the history as JSON, in one line. @param workspace as above */
  history(workspace: string | undefined): string;
  /** Replaces every form of the upstream key in a text. */
  redact(text: string): string;
  onFault(error: unknown): void;
}

type Sink = ReadableStreamDefaultController<Uint8Array>;

export class LiveEvents {
  readonly #options: LiveEventsOptions;
  /** Of each console the workspace that it shows; `undefined` for all. */
  readonly #sinks = new Map<Sink, string | undefined>();
  #timer: NodeJS.Timeout | undefined;

  constructor(options: LiveEventsOptions) {
    this.#options = options;
  }

  /** The body of one console's reply. @param workspace the only one that it shows, of several */
  open(workspace: string | undefined): ReadableStream<Uint8Array> {
    let own: Sink | undefined;
    return new ReadableStream<Uint8Array>({
      start: (sink) => {
        own = sink;
        const [oldest] = this.#sinks.keys();
        if (this.#sinks.size >= maxConsoles && oldest !== undefined) this.#end(oldest);
        this.#sinks.set(sink, workspace);
        sink.enqueue(this.#eventOf('history', this.#options.history(workspace)));
        void this.#tellStatus([workspace]);
        this.#timer ??= setInterval(() => void this.#tellStatus(this.#sinks.values()), statusEveryMs).unref();
      },
      cancel: () => {
        if (own !== undefined) this.#leave(own);
      },
    });
  }

  /** Tells the consoles that show a workspace, or all together. @param json in one line */
  tell(workspace: string | undefined, event: string, json: string): void {
    const sinks = [...this.#sinks].filter(([, shown]) => shown === workspace);
    this.#tellThese(
      sinks.map(([sink]) => sink),
      event,
      json,
    );
  }

  #tellThese(sinks: readonly Sink[], event: string, json: string): void {
    if (sinks.length === 0) return;
    const bytes = this.#eventOf(event, json);
    for (const sink of sinks) {
      // It does not read: it may open another one when it does.
      if ((sink.desiredSize ?? 0) < -8) this.#end(sink);
      else sink.enqueue(bytes);
    }
  }

  close(): void {
    for (const sink of [...this.#sinks.keys()]) this.#end(sink);
  }

  async #tellStatus(workspaces: Iterable<string | undefined>): Promise<void> {
    try {
      for (const workspace of new Set(workspaces)) {
        this.tell(workspace, 'status', await this.#options.status(workspace));
      }
    } catch (error) {
      this.#options.onFault(error);
    }
  }

  #end(sink: Sink): void {
    this.#leave(sink);
    sink.close();
  }

  #leave(sink: Sink): void {
    this.#sinks.delete(sink);
    if (this.#sinks.size > 0) return;
    clearInterval(this.#timer);
    this.#timer = undefined;
  }

  #eventOf(event: string, json: string): Uint8Array {
    return searched(`event: ${event}\ndata: ${json}\n\n`, this.#options.redact);
  }
}
