/** Callers files in folders of their own, gone with the test. */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { onTestFinished } from 'vitest';
import { digestOf, mintToken } from '../../src/callers/token.ts';
import { type AtEnd, startPair, type TestGateway } from './gateway.ts';
import type { StandInOptions } from './stand-in/stand-in.ts';

/** A token and the entry of a caller that has it. */
export function enrol(name: string, more: object = {}): { token: string; entry: object } {
  const token = mintToken();
  return { token, entry: { name, tokens: [{ sha256: digestOf(token) }], ...more } };
}

export function textOf(callers: readonly object[]): string {
  return JSON.stringify({ callers });
}

export function writeCallersFile(callers: readonly object[], atEnd: AtEnd = onTestFinished): string {
  const folder = mkdtempSync(join(tmpdir(), 'gateway-callers-'));
  atEnd(() => rmSync(folder, { recursive: true }));
  const file = join(folder, 'callers.json');
  writeFileSync(file, textOf(callers));
  return file;
}

/** A whole gateway with these callers. */
export async function startWith(
  callers: readonly object[],
  settings: Record<string, string> = {},
  standInOptions: StandInOptions = {},
  atEnd: AtEnd = onTestFinished,
): Promise<TestGateway & { readonly file: string }> {
  const file = writeCallersFile(callers, atEnd);
  return { ...(await startPair({ CALLERS_FILE: file, ...settings }, standInOptions, atEnd)), file };
}

export function bearer(token: string): { authorization: string } {
  return { authorization: `Bearer ${token}` };
}
