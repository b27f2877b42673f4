/** Hands over the text of a file whenever it changes, and says when the file can't be read. */

import { readText } from '../files/read.ts';
import { type FileWatch, watchForChanges } from '../files/watch.ts';
import { digestOf } from './token.ts';

export interface FollowedFileOptions {
  readonly file: string;
  /** The text that is known already. */
  readonly text: string;
  /**
   * Takes a new text. `false`: it can't be used. It may be half written, so it is handed over once more, as its
   * second look, when it has stood for a while.
   */
  onText(text: string, isSecondLook: boolean): boolean;
  /** The file can't be read; `undefined` when it can be again. */
  onFailureChange(error: unknown): void;
}

/** How long a text that can't be used must stand before it is believed to be whole. */
const suspectMs = 200;
/** A failure may have another cause than the file (no file descriptor is free), which no change of it ends. */
const retryMs = 500;

export class FollowedFile {
  readonly #options: FollowedFileOptions;
  readonly #watch: FileWatch;
  #known: string;
  #suspect: string | undefined;
  #suspectSinceMs = 0;
  #isFailing = false;
  #isReading = false;
  #readAgain = false;
  #timer: NodeJS.Timeout | undefined;
  #isClosed = false;

  constructor(options: FollowedFileOptions) {
    this.#options = options;
    this.#known = digestOf(options.text);
    this.#watch = watchForChanges(options.file, () => void this.#read());
  }

  /** Hands the text over again at once, changed or not. */
  readNow(): void {
    this.#known = '';
    void this.#read();
  }

  close(): void {
    this.#isClosed = true;
    clearTimeout(this.#timer);
    this.#watch.close();
  }

  /** One reading at a time. Never rejects. */
  async #read(): Promise<void> {
    if (this.#isReading || this.#isClosed) {
      this.#readAgain = true;
      return;
    }
    this.#isReading = true;
    do {
      this.#readAgain = false;
      try {
        this.#handOver(await readText(this.#options.file));
      } catch (error) {
        this.#onFailure(error);
      }
    } while (this.#readAgain && !this.#isClosed);
    this.#isReading = false;
  }

  #handOver(text: string): void {
    if (this.#isClosed) return;
    if (this.#isFailing) {
      this.#isFailing = false;
      this.#options.onFailureChange(undefined);
    }
    const digest = digestOf(text);
    if (digest === this.#known) {
      this.#suspect = undefined;
      return;
    }
    const isSecondLook = this.#suspect === digest;
    if (isSecondLook && performance.now() - this.#suspectSinceMs < suspectMs) {
      this.#readIn(suspectMs);
      return;
    }
    if (this.#options.onText(text, isSecondLook) || isSecondLook) {
      this.#known = digest;
      this.#suspect = undefined;
      return;
    }
    this.#suspect = digest;
    this.#suspectSinceMs = performance.now();
    this.#readIn(suspectMs);
  }

  #onFailure(error: unknown): void {
    if (this.#isClosed) return;
    this.#readIn(retryMs);
    if (this.#isFailing) return;
    this.#isFailing = true;
    this.#options.onFailureChange(error);
  }

  #readIn(ms: number): void {
    clearTimeout(this.#timer);
    if (this.#isClosed) return;
    this.#timer = setTimeout(() => void this.#read(), ms);
    this.#timer.unref();
  }
}
