/**
 * Workspaces of one gateway against gateways that have one workspace each: the same random history, side by side. What
 * callers get, what the upstream is sent and what is counted must be the same.
 */
import { writeFileSync } from 'node:fs';
import { describe, expect, it, onTestFinished, vi } from 'vitest';
import { bearer, enrol, textOf, writeCallersFile } from '../support/callers-files.ts';
import { type Random, randomFrom } from '../support/random.ts';
import {
  accountsOf,
  keyOf,
  startWorkspaces,
  type TestWorkspace,
  type TestWorkspaces,
} from '../support/workspaces.ts';

type Action =
  | { readonly kind: 'read'; readonly page: number; readonly times: number }
  | { readonly kind: 'limited'; readonly page: number }
  | { readonly kind: 'limited for long'; readonly page: number }
  | { readonly kind: 'down'; readonly page: number }
  | { readonly kind: 'rotate' }
  | { readonly kind: 'refuse key'; readonly page: number }
  | { readonly kind: 'purge' }
  | { readonly kind: 'grant'; readonly isGranted: boolean };

const settings = {
  ADMIN_PORT: '0',
  CACHE_TTL: '1h',
  REQUEST_TIMEOUT: '6s',
  RETRY_BASE: '5ms',
  RETRY_CAP: '20ms',
};

/** A history of one workspace. The upstream may limit requests for long once, and only after most of it. */
function historyFrom(random: Random): readonly Action[] {
  const page = (): number => Math.floor(random() * 4);
  const history: Action[] = [];
  for (let at = 0; at < 24; at++) {
    const luck = random();
    if (luck < 0.45) history.push({ kind: 'read', page: page(), times: random() < 0.3 ? 8 : 1 });
    else if (luck < 0.6) history.push({ kind: 'limited', page: page() });
    else if (luck < 0.7) history.push({ kind: 'down', page: page() });
    else if (luck < 0.78) history.push({ kind: 'rotate' });
    else if (luck < 0.82) history.push({ kind: 'refuse key', page: page() });
    else if (luck < 0.92) history.push({ kind: 'purge' });
    else history.push({ kind: 'grant', isGranted: random() < 0.7 });
    if (at === 16 && random() < 0.5) history.push({ kind: 'limited for long', page: page() });
  }
  return history;
}

/** A gateway with a caller, and the histories that it goes through. */
class Run {
  readonly #all: TestWorkspaces;
  readonly #file: string;
  readonly #caller: ReturnType<typeof enrol>;
  readonly #granted: Set<string>;

  private constructor(all: TestWorkspaces, file: string, caller: ReturnType<typeof enrol>) {
    this.#all = all;
    this.#file = file;
    this.#caller = caller;
    this.#granted = new Set(all.workspaces.map(({ name }) => name));
  }

  /** @param seeds of the stand-ins' data, by the workspaces' names */
  static async start(names: readonly string[], seeds: Readonly<Record<string, number>>): Promise<Run> {
    const caller = enrol('script', { workspaces: names });
    const file = writeCallersFile([caller.entry]);
    const all = await startWorkspaces(
      names,
      { ...settings, CALLERS_FILE: file },
      { accounts: 1 },
      onTestFinished,
      seeds,
    );
    return new Run(all, file, caller);
  }

  /** Goes through one workspace's history. @returns what its callers got, in order */
  async go(name: string, history: readonly Action[]): Promise<readonly string[]> {
    const got: string[] = [];
    const workspace = this.#all.workspace(name);
    let generation = 1;
    for (const action of history) {
      if (action.kind === 'rotate') generation += 1;
      got.push(`${action.kind}: ${await this.#do(action, workspace, keyOf(name, generation), generation)}`);
    }
    return got;
  }

  async #do(action: Action, workspace: TestWorkspace, key: string, generation: number): Promise<string> {
    const { name, standIn } = workspace;
    switch (action.kind) {
      case 'read':
        return await this.#read(name, action.page, action.times);
      case 'limited':
        standIn.behave({ status: 429, headers: { 'retry-after': '0' } }, 1);
        return await this.#readAndRecover(workspace, action.page);
      case 'limited for long':
        standIn.behave({ status: 429, headers: { 'retry-after': '600' } }, 1);
        return await this.#readAndRecover(workspace, action.page);
      case 'down':
        standIn.behave({ status: 404 }, 1);
        return await this.#readAndRecover(workspace, action.page);
      case 'rotate':
        standIn.keys.add(key);
        workspace.putKey(key);
        await this.#all.gateway.gateway.reload();
        await this.#until(name, ({ key: { generation: now } }) => now === generation);
        standIn.keys.delete(keyOf(name, generation - 1));
        return String(generation);
      case 'refuse key': {
        standIn.keys.delete(key);
        const read = await this.#read(name, action.page, 1);
        standIn.keys.add(key);
        await this.#until(name, ({ key: { rejected } }) => !rejected);
        return read;
      }
      case 'purge': {
        const path = `/cache/purge?workspace=${name}`;
        const { entries } = (await this.#all.gateway.askAdmin(path, { method: 'POST' })).json();
        return String(entries);
      }
      case 'grant':
        if (action.isGranted) this.#granted.add(name);
        else this.#granted.delete(name);
        writeFileSync(this.#file, textOf([{ ...this.#caller.entry, workspaces: [...this.#granted] }]));
        await this.#until(
          name,
          // The status of a workspace lists its own callers.
          ({ callers }) => callers.list.length > 0 === action.isGranted,
        );
        return '';
    }
  }

  async #readAndRecover({ name, standIn }: TestWorkspace, page: number): Promise<string> {
    const read = await this.#read(name, page, 1);
    standIn.behave(undefined);
    return read;
  }

  /** The same read so many times at once. */
  async #read(name: string, page: number, times: number): Promise<string> {
    const path = accountsOf(name, `?page=${page}`);
    const headers = bearer(this.#caller.token);
    const came = await Promise.all(
      Array.from({ length: times }, () => this.#all.gateway.ask(path, { headers })),
    );
    const shown = came.map(({ status, headers: fields, body }) => {
      // A refusal says which base addresses the caller has: here it has fewer.
      const text = body.toString().replace(/"(?:requestId|retryAfter|detail)":(?:"[^"]*"|[^,}]*)/g, '');
      // Of requests at the same time, some may find the answer stored already.
      const cache = times > 1 ? '' : String(fields['cache-status']).replace(/; ttl=\d+/, '');
      return `${status} ${cache} ${text}`;
    });
    return shown.toSorted().join('\n');
  }

  /** Waits until the status of a workspace is so. */
  async #until(name: string, isSo: (status: Status) => boolean): Promise<void> {
    const read = async (): Promise<boolean> => {
      const status: unknown = (await this.#all.gateway.askAdmin(`/status?workspace=${name}`)).json();
      return isSo(status as Status);
    };
    await vi.waitUntil(read, { interval: 200, timeout: 60_000 });
  }

  /** What the upstream of a workspace answered, and with which keys it was asked. */
  sent(name: string): readonly string[] {
    const { requests } = this.#all.workspace(name).standIn;
    return [...new Set(requests.map(({ target, key, status }) => `${target} ${key} ${status}`))].toSorted();
  }

  /** The counts of a workspace that do not depend on how fast the machine is. */
  async counted(name: string): Promise<readonly string[]> {
    const text = (await this.#all.gateway.askAdmin('/metrics')).body.toString();
    const counted =
      /^analytics_gateway_(?:cache_entries|cache_evictions_total|cache_flights|upstream_attempts_total|key_generation|key_rejected|circuit_open|gate_waiting)\{/;
    return text
      .split('\n')
      .filter((line) => counted.test(line) && line.includes(`workspace="${name}"`))
      .filter((line) => !/operation="key-check"|outcome="401"/.test(line))
      .toSorted();
  }

  /** What the log says of the requests of a workspace. */
  logged(name: string): readonly string[] {
    return this.#all.gateway
      .logLines()
      .filter((line) => line['workspace'] === name && line['msg'] === 'request')
      .map(({ caller, operation, status, problem }) => `${caller} ${operation} ${status} ${problem}`);
  }
}

interface Status {
  readonly key: { readonly generation: number; readonly rejected: boolean };
  readonly callers: { readonly list: readonly { readonly workspaces: readonly string[] }[] };
}

describe('a workspace among others', () => {
  it.each([1, 2, 3, 4])(
    'a workspace among others is as one that has a gateway of its own, whatever happens to the others (history %i)',
    { timeout: 120_000 },
    async (seed) => {
      const random = randomFrom(seed);
      const seeds = { emea: 11, apac: 12 };
      const names = ['emea', 'apac'];
      const histories = new Map(names.map((name) => [name, historyFrom(random)] as const));
      const [together, ...alone] = await Promise.all([
        Run.start(names, seeds),
        ...names.map((name) => Run.start([name], seeds)),
      ]);
      const historyOf = (name: string): readonly Action[] => histories.get(name) ?? [];
      const [inOne, ...inOwn] = await Promise.all([
        Promise.all(names.map((name) => together.go(name, historyOf(name)))),
        ...names.map((name, index) => alone[index]?.go(name, historyOf(name))),
      ]);
      for (const [index, name] of names.entries()) {
        expect(inOne[index], `what callers of ${name} got`).toEqual(inOwn[index]);
        const own = alone[index];
        expect(together.sent(name), `what ${name} was sent`).toEqual(own?.sent(name));
        expect(await together.counted(name), `what was counted for ${name}`).toEqual(
          await own?.counted(name),
        );
        expect(together.logged(name), `what was logged of ${name}`).toEqual(own?.logged(name));
      }
    },
  );
});
