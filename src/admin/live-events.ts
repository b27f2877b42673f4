/**
 * Server-sent events for consoles (the living standard of HTML, section 9.2). The status is read once for all of them,
 * and not at all while none is open.
 */
const statusEveryMs = 2_000;

export interface LiveEventsOptions {
  /** The status as JSON, in one line. */
  status(): Promise<string>;
  /** What a console is told first: the history as JSON, in one line. */
  history(): string;
  /** Replaces every form of the upstream key in a text. */
  redact(text: string): string;
  onFault(error: unknown): void;
}

type Sink = ReadableStreamDefaultController<Uint8Array>;

export class LiveEvents {
  readonly #options: LiveEventsOptions;
  readonly #sinks = new Set<Sink>();
  #timer: NodeJS.Timeout | undefined;

  constructor(options: LiveEventsOptions) {
    this.#options = options;
  }

  /** The body of one console's reply. */
  open(): ReadableStream<Uint8Array> {
    let own: Sink | undefined;
    return new ReadableStream<Uint8Array>({
      start: (sink) => {
        own = sink;
        this.#sinks.add(sink);
        sink.enqueue(this.#eventOf('history', this.#options.history()));
        void this.#tellStatus();
        this.#timer ??= setInterval(() => void this.#tellStatus(), statusEveryMs).unref();
      },
      cancel: () => {
        if (own !== undefined) this.#leave(own);
      },
    });
  }

  /** Tells all consoles. @param json in one line */
  tell(event: string, json: string): void {
    if (this.#sinks.size === 0) return;
    const bytes = this.#eventOf(event, json);
    for (const sink of [...this.#sinks]) {
      // It does not read: it may open another one when it does.
      if ((sink.desiredSize ?? 0) < -8) this.#end(sink);
      else sink.enqueue(bytes);
    }
  }

  close(): void {
    for (const sink of [...this.#sinks]) this.#end(sink);
  }

  async #tellStatus(): Promise<void> {
    try {
      this.tell('status', await this.#options.status());
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
    // Byte for byte as Latin-1, as all replies are searched.
    const text = Buffer.from(`event: ${event}\ndata: ${json}\n\n`).toString('latin1');
    return Buffer.from(this.#options.redact(text), 'latin1');
  }
}
