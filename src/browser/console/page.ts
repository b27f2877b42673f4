/** Writes into the page's own elements, text only: names come from a file, and none of them may become markup. */

export type Mood = '' | 'good' | 'busy' | 'bad';

/** An element of the page's markup. */
export function $(id: string): HTMLElement {
  const found = document.getElementById(id);
  if (found === null) throw new Error(`the page has no ${id}`);
  return found;
}

/** The same, where it is an element of a known kind. */
export function field<Kind extends HTMLElement>(id: string, kind: new () => Kind): Kind {
  const found = $(id);
  if (!(found instanceof kind)) throw new Error(`${id} is something else`);
  return found;
}

/** Writes a text where it differs, so that what a reader has selected stays. */
export function set(node: Element, text: string): void {
  if (node.textContent !== text) node.textContent = text;
}

export function make(tag: string, text = '', className = ''): HTMLElement {
  const node = document.createElement(tag);
  node.textContent = text;
  node.className = className;
  return node;
}

export function say(id: string, text: string, mood: Mood = ''): void {
  set($(id), text);
  $(id).className = `says ${mood}`;
}

/** A text that may be broken behind slashes, commas and colons, but for those of a time. */
function breakable(node: HTMLElement, text: string): HTMLElement {
  const parts = text.split(/(?<=[/,])|(?<=:)(?=\D)/);
  node.replaceChildren(
    ...parts.flatMap((part, at) => (at > 0 ? [document.createElement('wbr'), part] : [part])),
  );
  return node;
}

/** Fills a list of names and values. */
export function list(id: string, pairs: readonly (readonly [name: string, value: string])[]): void {
  $(id).replaceChildren(
    ...pairs.flatMap(([name, value]) => [make('dt', name), breakable(make('dd'), value)]),
  );
}

/** A row of a table: each cell a text, or a text and how good that is; and how good the whole is. */
export interface Row {
  readonly cells: readonly (string | readonly [text: string, mood: Mood])[];
  readonly mood?: Mood;
}

/** Fills the body of a table; where it has no row, a sentence stands in its place. */
export function table(id: string, rows: readonly Row[], none: string): void {
  const whole = $(id).closest('table');
  if (whole === null) return;
  const columns = [...whole.querySelectorAll('thead th')];
  whole.hidden = rows.length === 0;
  if (whole.nextElementSibling !== null) set(whole.nextElementSibling, rows.length === 0 ? none : '');
  $(id).replaceChildren(...rows.map((one) => row(one, columns)));
}

function row({ cells, mood = '' }: Row, columns: readonly Element[]): HTMLElement {
  const made = make('tr', '', mood);
  made.setAttribute('role', 'row');
  for (const [at, one] of cells.entries()) {
    const [text, cellMood = ''] = typeof one === 'string' ? [one] : one;
    const classes = `${columns[at]?.className ?? ''} ${cellMood}`.trim();
    const cell = breakable(make(at > 0 ? 'td' : 'th', '', classes), text);
    cell.setAttribute('role', at > 0 ? 'cell' : 'rowheader');
    if (at > 0) cell.dataset['label'] = columns[at]?.textContent ?? '';
    else cell.setAttribute('scope', 'row');
    made.append(cell);
  }
  return made;
}

export function number(value: number, digits = 0): string {
  return value.toLocaleString('en', { maximumFractionDigits: digits });
}

/** Of 24 hours, wherever the reader is. */
export function clock(at: number | string | Date, hasSeconds = true): string {
  const digits = { hour: '2-digit', minute: '2-digit' } as const;
  return new Date(at).toLocaleTimeString('en-GB', hasSeconds ? { ...digits, second: '2-digit' } : digits);
}

/** A time of minutes and more; `null` is never. */
export function span(seconds: number | null): string {
  if (seconds === null) return 'never';
  if (seconds < 120) return `${number(seconds)} s`;
  if (seconds < 7_200) return `${number(seconds / 60)} min`;
  return seconds < 172_800 ? `${number(seconds / 3_600)} h` : `${number(seconds / 86_400)} days`;
}

/** A time of milliseconds and seconds. */
export function time(seconds: number): string {
  if (seconds < 0.01) return `${number(seconds * 1_000, 2)} ms`;
  return seconds < 1 ? `${number(seconds * 1_000)} ms` : `${number(seconds, 1)} s`;
}

export function bytes(count: number): string {
  if (count < 1_024) return `${count} B`;
  return count < 2 ** 20 ? `${number(count / 1_024, 1)} KiB` : `${number(count / 2 ** 20, 1)} MiB`;
}
