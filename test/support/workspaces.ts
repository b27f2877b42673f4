/** Gateways with several workspaces, each before a stand-in of its own. */
import { mkdtempSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { onTestFinished } from 'vitest';
import { variableOf } from '../../src/config/workspaces.ts';
import { type AtEnd, startPair, type TestGateway } from './gateway.ts';
import { type StandIn, type StandInOptions, startStandIn } from './stand-in/stand-in.ts';

export interface TestWorkspace {
  readonly name: string;
  readonly standIn: StandIn;
  /** Puts another key into its store. */
  putKey(key: string): void;
}

export interface TestWorkspaces {
  readonly gateway: TestGateway;
  /** In the order in which they were asked for. */
  readonly workspaces: readonly TestWorkspace[];
  workspace(name: string): TestWorkspace;
  /** Starts another gateway with the same workspaces and settings. */
  another(): Promise<TestGateway>;
}

/** Made up, and another for each workspace. */
export function keyOf(workspace: string, generation = 1): string {
  return `wa_standin+${workspace}-${generation}/2c71~e0b9.a35d==`;
}

/** The base address of a workspace. */
export function baseOf(workspace: string): string {
  return workspace === '' ? '/api' : `/w/${workspace}/api`;
}

/** The read that most tests make, in a workspace. */
export function accountsOf(workspace: string, query = ''): string {
  return `${baseOf(workspace)}/analytics/accounts/${query}`;
}

/**
 * Starts a gateway with these workspaces, whose keys are files, and ends it with the test. The data of each stand-in
 * differ.
 *
 * @param names an empty one is the unnamed workspace
 * @param seeds what the stand-ins' data follow from, by the workspaces' names
 */
export async function startWorkspaces(
  names: readonly string[],
  settings: Record<string, string> = {},
  standInOptions: StandInOptions = {},
  atEnd: AtEnd = onTestFinished,
  seeds: Readonly<Record<string, number>> = {},
): Promise<TestWorkspaces> {
  const folder = mkdtempSync(join(tmpdir(), 'gateway-workspaces-'));
  const own: Record<string, string> = {};
  const workspaces: TestWorkspace[] = [];
  for (const [index, name] of names.entries()) {
    const standIn = await startStandIn({
      key: keyOf(name),
      seed: seeds[name] ?? index + 1,
      ...standInOptions,
    });
    const file = join(folder, `key-${name || 'unnamed'}`);
    const putKey = (key: string): void => {
      writeFileSync(`${file}.next`, key);
      renameSync(`${file}.next`, file);
    };
    putKey(keyOf(name));
    own[variableOf('UPSTREAM_API_KEY_FROM', name)] = `file:${file}`;
    own[variableOf('UPSTREAM_BASE_URL', name)] = standIn.url;
    workspaces.push({ name, standIn, putKey });
  }
  const all = {
    UPSTREAM_API_KEY: '',
    WORKSPACES: names.filter((name) => name !== '').join(','),
    ...own,
    ...settings,
  };
  // A store that is only slow, because the machine is, must not seem away.
  const another = (): Promise<TestGateway> => startPair(all, {}, atEnd, 10_000);
  const gateway = await another();
  atEnd(async () => {
    await Promise.all(workspaces.map(({ standIn }) => standIn.close()));
    rmSync(folder, { recursive: true });
  });
  return {
    gateway,
    workspaces,
    another,
    workspace(name) {
      const found = workspaces.find((one) => one.name === name);
      if (found === undefined) throw new Error(`there is no workspace ${name}`);
      return found;
    },
  };
}
